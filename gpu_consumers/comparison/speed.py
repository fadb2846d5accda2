"""How fast an engine is, by a worker's own loop without a log. Pure but for the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Final

from gpu_consumers.engine import Engine
from gpu_consumers.errors import EngineConfigurationError
from gpu_consumers.generation import Model
from gpu_consumers.profiling.load import Load
from gpu_consumers.profiling.loop import LoadLoop, Until
from gpu_consumers.profiling.step import StepMeasured

MANY: Final = 16
"""Sequences of the larger batch."""

LEAST_CONTEXT_TOKENS: Final = 64
_DECODED_PROMPT_TOKENS: Final = 32
_DECODED_TOKENS: Final = 128
_PROMPT_TOKENS: Final = 256
_PROMPTS: Final = 4  # at once: a step is full of prompts
_MOST_STEPS: Final = 1000  # of a run that waits for the first that counts


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second, of all sequences together, in the median of steps: one that was held up counts as one.

    decode_one, decode_many: of a batch of 1 and of `many`, in steps that do nothing but decode.
    prefill: of prompts that fill the step.
    """

    decode_one: float
    decode_many: float
    many: int
    prefill: float


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """clock: seconds. wait: that many of them. synchronize: waits for the device. seconds: of each measurement."""

    clock: Callable[[], float]
    wait: Callable[[float], object]
    synchronize: Callable[[], None] = lambda: None
    seconds: float = 3.0


def measure_speed(engine: Engine, model: Model, watch: Stopwatch) -> Speed:
    """The engine must be warm and without sequences, and is so afterwards.

    Raises EngineConfigurationError for a context of fewer than LEAST_CONTEXT_TOKENS; EngineFailedError.
    """
    context = engine.info.max_context_tokens
    if context < LEAST_CONTEXT_TOKENS:
        raise EngineConfigurationError(
            f"a context of {context} tokens is too short to measure speed in: at least {LEAST_CONTEXT_TOKENS}"
        )
    many = min(MANY, engine.info.slots)
    longest = context * 2 // 3 - 1  # single requests have up to half more
    prompt = min(_DECODED_PROMPT_TOKENS, longest // 4)
    decoding = Load(prompt, min(_DECODED_TOKENS, longest - prompt), temperature=0.0)
    one, several = (_decode(engine, model, decoding, count, watch) for count in (1, many))
    prefilling = Load(min(_PROMPT_TOKENS, longest - 1), 1, min(_PROMPTS, many), temperature=0.0)
    steps = _steps(engine, model, prefilling, watch, lambda step: step.prompt_tokens > 0)
    return Speed(one, several, many, median(step.prompt_tokens / step.seconds for step in steps))


def _decode(engine: Engine, model: Model, load: Load, concurrency: int, watch: Stopwatch) -> float:
    load = Load(load.prompt_tokens, load.output_tokens, concurrency, temperature=load.temperature)
    steps = _steps(engine, model, load, watch, lambda step: step.output_tokens > 0 and not step.prompt_tokens)
    return median(step.output_tokens / step.seconds for step in steps)


def _steps(
    engine: Engine, model: Model, load: Load, watch: Stopwatch, counts: Callable[[StepMeasured], bool]
) -> list[StepMeasured]:
    """Those that count, of a run that goes on until there is one: prompts come first."""
    loop = LoadLoop(engine, model, load, clock=watch.clock, wait=watch.wait, synchronize=watch.synchronize)
    try:
        steps = loop.run(Until(watch.seconds))
        while not (found := [step for step in steps if counts(step)]) and len(steps) < _MOST_STEPS:
            steps += loop.run(Until(inf, steps=1))
    finally:
        loop.close()
    if not found:
        raise EngineConfigurationError(f"in {len(steps)} steps there was none of the kind to be measured")
    return found
