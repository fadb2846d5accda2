"""What one model makes of a text: its loss on every token, the tokens that it would have said, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from math import exp, log
from typing import Final

from gpu_consumers.comparison.continuations import continued, prompts
from gpu_consumers.comparison.windows import spread, windows
from gpu_consumers.engine import Engine
from gpu_consumers.engines.scoring import Distributions, ScoresTokens
from gpu_consumers.errors import EngineConfigurationError

KEPT_BYTES: Final = 256 << 20
"""Of distributions, which outlive the engine: as many places of the text as fit, evenly over all of it."""

_NUMBER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text as one tokenizer has it. predicted_bytes: of the text without its first token, which nobody predicts."""

    token_ids: tuple[int, ...]
    predicted_bytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """losses: nats of every token but the first. likeliest: greedy tokens in their places. distributions: by window.
    continuations: greedy tokens behind each of a few pieces of the text."""

    losses: tuple[float, ...]
    likeliest: tuple[int, ...]
    distributions: tuple[Distributions, ...]
    continuations: tuple[tuple[int, ...], ...]
    predicted_bytes: int

    @property
    def perplexity(self) -> float:
        """e to the mean loss of a token."""
        return exp(sum(self.losses) / len(self.losses))

    @property
    def bits_per_byte(self) -> float:
        """The loss of the whole text in bits, by its bytes in UTF-8: it does not depend on how the text is cut."""
        return sum(self.losses) / log(2) / self.predicted_bytes


def read_text(
    engine: Engine,
    text: TokenizedText,
    *,
    window_tokens: int,
    keeps_distributions: bool,
    told: Callable[[str], None] = lambda what: None,
) -> Reading:
    """The engine must be without sequences, and is so afterwards.

    Raises EngineConfigurationError for an engine that gives no probabilities, or a text that is not its tokenizer's;
    EngineFailedError.
    """
    vocabulary = engine.info.vocabulary_size
    if not isinstance(engine, ScoresTokens):
        raise EngineConfigurationError(f"the engine {engine.info.name} tells no probabilities of a text")
    if max(text.token_ids) >= vocabulary:
        raise EngineConfigurationError(
            f"the tokenizer gives the token {max(text.token_ids)}, and the model's vocabulary has {vocabulary}: they "
            "do not belong together"
        )
    tokens = len(text.token_ids)
    kept = spread(1, tokens, KEPT_BYTES // (_NUMBER_BYTES * vocabulary) if keeps_distributions else 0)
    found = []
    for window in windows(tokens, window_tokens):
        told(f"scoring token {window.first:,} of {tokens:,}")
        places = [place - window.begin for place in range(window.first, window.end) if place in kept]
        ids = text.token_ids[window.begin : window.end]
        found.append(engine.score(ids, window.first - window.begin, places))
    told("going on behind pieces of the text")
    return Reading(
        losses=tuple(chain.from_iterable(part.losses for part in found)),
        likeliest=tuple(chain.from_iterable(part.likeliest for part in found)),
        distributions=tuple(part.distributions for part in found) if kept else (),
        continuations=continued(engine, prompts(text.token_ids, engine.info.max_context_tokens)),
        predicted_bytes=text.predicted_bytes,
    )
