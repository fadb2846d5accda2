"""What LoRA adapters cost: the same requests with four adapters mixed, and with the bare model, in the same engine.

SmolLM2-135M in bf16, prompts of 16 to 256 tokens, 64 tokens out, all requests at once. Adapters of rank 16 on all
linear projections, one in four requests each. With and without take turns; medians are compared.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from gpu_consumers.engines.torch import TorchEngine
from infra.settings import load_settings
from models.smollm2 import ensure_smollm2
from tests.batching import Request, run_batch
from tests.benchmarks.row import BenchRow
from tests.benchmarks.smollm2 import OUTPUT_TOKENS, Prompts, mixed_prompts, smollm2_engine
from tests.lora_adapter import make_adapter

CONCURRENT: Final = (16, 32)
ADAPTERS: Final = 4
RANK: Final = 16
ROUNDS: Final = 5
BAR: Final = 1.12


def run() -> list[BenchRow]:
    engine = smollm2_engine(adapter_places=ADAPTERS)
    _install(engine)
    names = [str(number) for number in range(ADAPTERS)]
    rows = []
    for concurrent in CONCURRENT:
        prompts = mixed_prompts(concurrent)
        _seconds(engine, prompts, names)
        bare, adapted = [], []
        for _ in range(ROUNDS):
            bare.append(_seconds(engine, prompts, [None]))
            adapted.append(_seconds(engine, prompts, names))
        rows.append(
            BenchRow(
                f"lora_cost_{concurrent}", statistics.median(adapted), statistics.median(bare), "s", BAR,
                higher_is_better=False,
            )
        )  # fmt: skip
    return rows


def _install(engine: TorchEngine) -> None:
    model = ensure_smollm2(load_settings()[0].cache_dir, lambda progress: None)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ADAPTERS):
            adapter = make_adapter(model, Path(folder) / str(number), seed=number, rank=RANK)
            engine.read_adapter(str(number), str(adapter))(number)


def _seconds(engine: TorchEngine, prompts: Prompts, adapters: list[str] | list[None]) -> float:
    """To answer all prompts, each with the next of the adapters."""
    requests = [
        Request(prompt, OUTPUT_TOKENS, adapter=adapters[number % len(adapters)])
        for number, prompt in enumerate(prompts)
    ]
    started = time.perf_counter()
    run_batch(engine, requests)
    return time.perf_counter() - started
