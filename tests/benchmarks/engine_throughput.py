"""The torch engine against what a Python user would pick instead on the same machine: output tokens a second.

SmolLM2-135M in bf16, prompts of 16 to 256 tokens, 64 tokens out, greedy, end of answer ignored so that all make 64.
All requests of a run come at once. Three rounds, in each of which everybody runs in turn; medians are compared.
Sequential `generate()` runs four of the requests in each round, evenly spread over the prompt lengths, because its
speed does not depend on how many there are, and all of them would take minutes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch

from gpu_consumers.engines.torch import TorchEngine
from tests.batching import Request, run_batch
from tests.benchmarks.row import BenchRow
from tests.benchmarks.smollm2 import (
    OUTPUT_TOKENS,
    Prompts,
    continuous_batching,
    mixed_prompts,
    smollm2_engine,
    smollm2_transformers,
)

ROUNDS: Final = 3
BARS: Final = {1: (1.5, None), 16: (12.0, 4.0), 32: (12.0, 4.0)}
"""By concurrent requests: against sequential `generate()`, and against transformers' continuous batching."""

Contestant = Callable[[Prompts], int]
"""Answers all prompts and returns how many tokens it made."""


def run() -> list[BenchRow]:
    loaded = smollm2_transformers()
    engine, sequential, continuous = _engine(smollm2_engine()), _sequential(loaded), _continuous(loaded)
    rows = []
    for concurrent, (sequential_bar, continuous_bar) in BARS.items():
        prompts = mixed_prompts(max(concurrent, 4))
        ours, one_by_one, theirs = [], [], []
        for number in range(ROUNDS):
            some = sorted(prompts, key=len)[number % (len(prompts) // 4) :: len(prompts) // 4]
            if concurrent == 1:
                ours.append(_tokens_per_second(lambda p: sum(engine([one]) for one in p), some))
            else:
                ours.append(_tokens_per_second(engine, prompts))
            if continuous_bar is not None:
                theirs.append(_tokens_per_second(continuous, prompts))
            one_by_one.append(_tokens_per_second(sequential, some))
        rows.append(_row(f"engine_vs_sequential_generate_{concurrent}", ours, one_by_one, sequential_bar))
        if continuous_bar is not None:
            rows.append(_row(f"engine_vs_transformers_cb_{concurrent}", ours, theirs, continuous_bar))
    return rows


def _row(name: str, ours: list[float], baseline: list[float], bar: float) -> BenchRow:
    return BenchRow(name, statistics.median(ours), statistics.median(baseline), "output tokens/s", bar)


def _tokens_per_second(contestant: Contestant, prompts: Prompts) -> float:
    started = time.perf_counter()
    made = contestant(prompts)
    seconds = time.perf_counter() - started
    if made != OUTPUT_TOKENS * len(prompts):
        raise RuntimeError(f"{made} tokens made, {OUTPUT_TOKENS * len(prompts)} asked for: the times can't be compared")
    return made / seconds


def _engine(engine: TorchEngine) -> Contestant:
    def answer(prompts: Prompts) -> int:
        requests = run_batch(engine, [Request(prompt, OUTPUT_TOKENS) for prompt in prompts])
        return sum(len(request.output) for request in requests)

    return answer


def _sequential(model: Any) -> Contestant:
    def answer(prompts: Prompts) -> int:
        made = 0
        for prompt in prompts:
            ids = torch.tensor([prompt])
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=OUTPUT_TOKENS,
                min_new_tokens=OUTPUT_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
            made += whole.shape[1] - len(prompt)
        return made

    return answer


def _continuous(model: Any) -> Contestant:
    def answer(prompts: Prompts) -> int:
        return sum(len(output.generated_tokens) for output in continuous_batching(model, prompts))

    return answer
