"""One comparison from beginning to end. The two models are loaded one after the other, never both at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpu_consumers.comparison.agreement import Agreement, agreement
from gpu_consumers.comparison.reading import Reading, TokenizedText, read_text
from gpu_consumers.comparison.speed import Speed, Stopwatch, measure_speed
from gpu_consumers.engine import Engine
from gpu_consumers.engines.scoring import ScoresTokens
from gpu_consumers.errors import EngineConfigurationError, MemoryShortError
from gpu_consumers.generation import Model
from models.tokenizer import Tokenizer

WINDOW_TOKENS: Final = 1024
LEAST_TOKENS: Final = 64
"""Of a text: with fewer, one odd word decides."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One of the two. label: for people. context_tokens: of its slots. open: its engine, with weights loaded."""

    label: str
    tokenizer: Tokenizer
    context_tokens: int
    open: Callable[[], Engine]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one model came to. load_seconds: until its weights are in memory."""

    label: str
    reading: Reading
    speed: Speed
    load_seconds: float
    weight_bytes: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """agreement: None where the two cut the text into different tokens; perplexities don't compare then, bits per byte
    do. text_bytes: of the whole text in UTF-8."""

    a: Measured
    b: Measured
    agreement: Agreement | None
    text_bytes: int
    window_tokens: int


def run_comparison(
    a: Subject,
    b: Subject,
    text: str,
    watch: Stopwatch,
    *,
    told: Callable[[str], None] = lambda what: None,
    give_back: Callable[[], None] = lambda: None,
) -> Comparison:
    """told: hears what is being done, for people who wait. give_back: what the device has cached of the first model.

    Raises EngineConfigurationError for a text that is too short, and as `read_text` and `measure_speed` do;
    MemoryShortError; EngineFailedError; what the subjects raise where they are opened; ModelError.
    """
    text_a, text_b = _tokenized(a, text), _tokenized(b, text)
    same_tokens = text_a == text_b
    window = min(WINDOW_TOKENS, a.context_tokens, b.context_tokens)
    found = []
    for subject, tokens in ((a, text_a), (b, text_b)):
        found.append(_measured(subject, tokens, window, watch, same_tokens, told))
        gc.collect()  # an engine's parts know each other: what is closed goes only now
        give_back()
    of_a, of_b = found
    alike = agreement(of_a.reading, of_b.reading) if same_tokens else None
    return Comparison(of_a, of_b, alike, len(text.encode()), window)


def _tokenized(subject: Subject, text: str) -> TokenizedText:
    ids = tuple(subject.tokenizer.encode(text))
    if len(ids) < LEAST_TOKENS:
        raise EngineConfigurationError(
            f"the text has {len(ids)} tokens for {subject.label}: a comparison needs at least {LEAST_TOKENS}, and is "
            "worth more with thousands"
        )
    return TokenizedText(ids, len(text.encode()) - len(subject.tokenizer.token_bytes(ids[0])))


def _measured(
    subject: Subject,
    text: TokenizedText,
    window_tokens: int,
    watch: Stopwatch,
    keeps_distributions: bool,
    told: Callable[[str], None],
) -> Measured:
    def say(what: str) -> None:
        told(f"{subject.label}: {what}")

    try:
        say("loading")
        began = watch.clock()
        engine = subject.open()
        watch.synchronize()
        load_seconds = watch.clock() - began
        try:
            say("warming up")
            engine.warm_up()
            reading = read_text(
                engine, text, window_tokens=window_tokens, keeps_distributions=keeps_distributions, told=say
            )
            say("measuring speed")
            speed = measure_speed(engine, Model(subject.tokenizer, engine.info.eos_token_ids), watch)
            assert isinstance(engine, ScoresTokens), "it has just been read with"
            return Measured(subject.label, reading, speed, load_seconds, engine.weight_bytes, engine.kv_bytes_per_token)
        finally:
            engine.close()
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise MemoryShortError(
            f"there is not enough memory for {subject.label}, though no other model was loaded: stop what else runs "
            f"there, take a smaller dtype, or less KV memory (HEADRACE_KV_CACHE_MIB); {type(error).__name__}"
            + "".join(f": {line}" for line in str(error).splitlines()[:1])
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    """torch has a class of its own on CUDA, and a sentence on a CPU."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )
