"""The torch engine against what a Python user would pick instead on the same machine: output tokens a second.

SmolLM2-135M in bf16, prompts of 16 to 256 tokens, 64 tokens out, greedy, end of answer ignored so that all make 64.
All requests of a run come at once. Three rounds, in each of which everybody runs in turn; medians are compared.
Sequential `generate()` runs four of the requests in each round, evenly spread over the prompt lengths, because its
speed does not depend on how many there are, and all of them would take minutes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from gpu_consumers.engines.torch import load_torch_engine
from infra.settings import load_settings
from models.smollm2 import ensure_smollm2
from tests.batching import Request, run_batch
from tests.benchmarks.row import BenchRow

ROUNDS: Final = 3
OUTPUT_TOKENS: Final = 64
BARS: Final = {1: (1.5, None), 16: (6.0, 2.0), 32: (12.0, 4.0)}
"""By concurrent requests: against sequential `generate()`, and against transformers' continuous batching."""

Prompts = list[tuple[int, ...]]
Contestant = Callable[[Prompts], int]
"""Answers all prompts and returns how many tokens it made."""


def run() -> list[BenchRow]:
    cache_dir = load_settings()[0].cache_dir
    directory = ensure_smollm2(cache_dir, lambda progress: None)
    loaded: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, local_files_only=True)
    engine, sequential, continuous = _engine(directory, cache_dir / "kernels"), _sequential(loaded), _continuous(loaded)
    rows = []
    for concurrent, (sequential_bar, continuous_bar) in BARS.items():
        prompts = _prompts(max(concurrent, 4))
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


def _prompts(count: int) -> Prompts:
    rng = random.Random(count)
    return [tuple(rng.randrange(10, 49_000) for _ in range(rng.randrange(16, 257))) for _ in range(count)]


def _engine(directory: Path, kernels_dir: Path) -> Contestant:
    engine = load_torch_engine(directory, dtype="bfloat16", slots=32, max_context_tokens=2048, kernels_dir=kernels_dir)
    engine.warm_up()

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
    """Transformers' continuous batching with the best of the settings tried for this load.

    Its default cache size and batch are for a GPU's memory and reach two thirds of this on two CPU cores.
    """
    generation: Any = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=OUTPUT_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    batching = ContinuousBatchingConfig(block_size=32, num_blocks=400, max_batch_tokens=256)

    def answer(prompts: Prompts) -> int:
        made = model.generate_batch(
            [list(prompt) for prompt in prompts],
            generation_config=generation,
            continuous_batching_config=batching,
        )
        return sum(len(output.generated_tokens) for output in made.values())

    return answer
