"""Weights in int8 against bf16: output tokens a second while nothing but decodes runs, on SmolLM2-135M.

Two engines of the same model. 1, 16 or 32 sequences with prompts of 32 tokens decode side by side in each; the engines
take turns by eight steps, so that both see the same machine, and the median steps are compared.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from gpu_consumers.engine import Engine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan
from tests.benchmarks.row import BenchRow
from tests.benchmarks.smollm2 import smollm2_engine

CONCURRENT: Final = (1, 16, 32)
BAR: Final = 1.25
PROMPT_TOKENS: Final = 32
TURNS: Final = 5
STEPS_OF_A_TURN: Final = 8
CONTEXT_TOKENS: Final = PROMPT_TOKENS + 1 + TURNS * STEPS_OF_A_TURN


def run() -> list[BenchRow]:
    bf16, int8 = smollm2_engine(), smollm2_engine(quantization="int8")
    rows = []
    for concurrent in CONCURRENT:
        ours, baseline = _Decoding(int8, concurrent), _Decoding(bf16, concurrent)
        for _ in range(TURNS):
            baseline.turn()
            ours.turn()
        rows.append(
            BenchRow(
                f"int8_decode_{concurrent}", ours.tokens_per_second, baseline.tokens_per_second, "output tokens/s", BAR
            )
        )
        ours.end()
        baseline.end()
    return rows


class _Decoding:
    """So many sequences in an engine's slots, each with its newest token."""

    def __init__(self, engine: Engine, concurrent: int) -> None:
        self._engine, self._seconds = engine, list[float]()
        self._position = PROMPT_TOKENS
        plan = StepPlan(
            admitted=tuple(Admission(slot, SamplingParams(), CONTEXT_TOKENS) for slot in range(concurrent)),
            prefills=tuple(
                PrefillChunk(slot, tuple(range(10 + slot, 10 + slot + PROMPT_TOKENS)), 0, last=True)
                for slot in range(concurrent)
            ),
        )
        self._newest = dict(engine.execute(plan).tokens)

    def turn(self) -> None:
        for _ in range(STEPS_OF_A_TURN):
            decodes = tuple(Decode(slot, token, self._position) for slot, token in self._newest.items())
            started = time.perf_counter()
            self._newest = dict(self._engine.execute(StepPlan(decodes=decodes)).tokens)
            self._seconds.append(time.perf_counter() - started)
            self._position += 1

    @property
    def tokens_per_second(self) -> float:
        return len(self._newest) / statistics.median(self._seconds)

    def end(self) -> None:
        self._engine.execute(StepPlan(released=tuple(self._newest)))
