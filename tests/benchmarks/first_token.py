"""Time to the first token: many at once against transformers, and a known prompt against a new one.

SmolLM2-135M in bf16. `first_token_p95_16`: 16 requests at once, as in engine_throughput.py; ours through the
scheduler of a worker. `prefix_hit_400`: a prompt of 400 tokens whose beginning the engine holds already.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from gpu_consumers.engines.torch import TorchEngine
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence
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
CONCURRENT: Final = 16
KNOWN_PROMPT_TOKENS: Final = 400
PREFIX_CACHE_BYTES: Final = 64 << 20


def run() -> list[BenchRow]:
    engine = smollm2_engine(slots=CONCURRENT, prefix_cache_bytes=PREFIX_CACHE_BYTES)
    return [_among_others(engine), _known_prompt(engine)]


def _among_others(engine: TorchEngine) -> BenchRow:
    model = smollm2_transformers()
    ours, theirs = [], []
    for number in range(ROUNDS):
        prompts = [(10 + number, *prompt) for prompt in mixed_prompts(CONCURRENT)]  # no round knows another's
        ours.append(_p95(first_token_seconds(engine, prompts)))
        outputs = continuous_batching(model, prompts)
        theirs.append(_p95([output.timestamps[0] - output.created_time for output in outputs]))
    return BenchRow(
        f"first_token_p95_{CONCURRENT}", 1e3 * statistics.median(ours), 1e3 * statistics.median(theirs), "ms", 0.5,
        higher_is_better=False,
    )  # fmt: skip


def _known_prompt(engine: TorchEngine) -> BenchRow:
    known: list[float] = []
    new: list[float] = []
    for number in range(2 * ROUNDS):
        prompt = tuple(10 + (number + 7 * position) % 40_000 for position in range(KNOWN_PROMPT_TOKENS))
        for times in (new, known):
            times += first_token_seconds(engine, [prompt], output_tokens=1)
    return BenchRow(
        f"prefix_hit_{KNOWN_PROMPT_TOKENS}", 1e3 * statistics.median(known), 1e3 * statistics.median(new),
        "ms to the first token", 0.2, higher_is_better=False,
    )  # fmt: skip


def first_token_seconds(engine: TorchEngine, prompts: Prompts, *, output_tokens: int = OUTPUT_TOKENS) -> list[float]:
    """Of each prompt, when all come at once and each makes so many tokens."""
    scheduler = Scheduler(engine.info, cached_tokens=engine.cached_tokens)
    for number, prompt in enumerate(prompts):
        scheduler.add(Sequence(str(number), "bench", prompt, len(prompt) + output_tokens))
    made: dict[str, int] = {}
    seconds = []
    began = time.perf_counter()
    while scheduler.waiting_count or scheduler.running_count:
        outcome = scheduler.take(engine.execute(scheduler.next_step(0).plan))
        now = time.perf_counter()
        for request_id in outcome.tokens:
            made[request_id] = made.get(request_id, 0) + 1
            if made[request_id] == 1:
                seconds.append(now - began)
            if made[request_id] == output_tokens:
                scheduler.remove(request_id)
    engine.execute(scheduler.next_step(0).plan)
    return seconds


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
