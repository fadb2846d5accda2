"""How a model goes on behind pieces of the text: greedy, together in one batch, as the scheduler runs them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from gpu_consumers.engine import Engine
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.plan import SamplingParams
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence as TokenSequence

PROMPTS: Final = 8
PROMPT_TOKENS: Final = 48
OUTPUT_TOKENS: Final = 32


def prompts(token_ids: Sequence[int], context_tokens: int) -> tuple[tuple[int, ...], ...]:
    """Pieces of the text, evenly from its beginning on; short enough for OUTPUT_TOKENS behind them."""
    length = max(1, min(PROMPT_TOKENS, context_tokens - OUTPUT_TOKENS, len(token_ids)))
    count = min(PROMPTS, len(token_ids) // length)
    begins = (i * (len(token_ids) - length) // max(1, count - 1) for i in range(count))
    return tuple(tuple(token_ids[begin : begin + length]) for begin in begins)


def continued(engine: Engine, prompts: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """OUTPUT_TOKENS behind each prompt; no token ends them. The engine holds no sequences before and after.

    Raises EngineFailedError.
    """
    scheduler = Scheduler(engine.info, cached_tokens=engine.cached_tokens)
    outputs: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
    for name, prompt in zip(outputs, prompts, strict=True):
        scheduler.add(TokenSequence(name, "", prompt, len(prompt) + OUTPUT_TOKENS, SamplingParams(temperature=0.0)))
    left = set(outputs)
    while left:
        outcome = scheduler.take(engine.execute(scheduler.next_step(0).plan))
        if outcome.failures:
            raise EngineFailedError(f"a continuation failed: {next(iter(outcome.failures.values()))}")
        for name, token_id in outcome.tokens.items():
            outputs[name].append(token_id)
            if len(outputs[name]) == OUTPUT_TOKENS:
                scheduler.remove(name)
                left.discard(name)
    engine.execute(scheduler.next_step(0).plan)  # frees the slots
    return tuple(map(tuple, outputs.values()))


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens the two begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
