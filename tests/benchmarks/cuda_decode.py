"""On CUDA: decode steps of a Llama-shaped model against the floor that the device's memory sets. Nothing without one.

A decode step must read all weights and all keys and values once. How fast the device reads is measured in the same
run, by copying a large tensor. The model has random weights: 1.1 billion parameters in bf16, as TinyLlama has.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan
from tests.benchmarks.row import BenchRow

CONCURRENT: Final = (64, 256)
CONTEXT_TOKENS: Final = 512
STEPS: Final = 50
LAYERS, HIDDEN, KEY_HEADS, HEAD_DIM = 22, 2048, 4, 64


def run() -> list[BenchRow]:
    if not torch.cuda.is_available():
        return []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        weight_bytes = _make_model(directory)
        engine = load_torch_engine(directory, device="cuda", slots=max(CONCURRENT), max_context_tokens=1024)
    engine.warm_up()
    bytes_per_second = _read_bytes_per_second()
    return [_row(engine, count, weight_bytes, bytes_per_second) for count in CONCURRENT]


def _row(engine: TorchEngine, count: int, weight_bytes: int, bytes_per_second: float) -> BenchRow:
    kv_bytes = count * (CONTEXT_TOKENS + STEPS // 2) * LAYERS * 2 * KEY_HEADS * HEAD_DIM * 2
    floor_seconds = (weight_bytes + kv_bytes) / bytes_per_second
    tokens_per_second = count / _step_seconds(engine, count)
    return BenchRow(f"cuda_decode_{count}", tokens_per_second, count / floor_seconds, "output tokens/s", 0.5)


def _step_seconds(engine: TorchEngine, count: int) -> float:
    """Median of a step in which so many decode, each behind its context."""
    for slot in range(count):
        prompt = tuple(3 + (slot + 7 * position) % 30_000 for position in range(CONTEXT_TOKENS))
        chunk = PrefillChunk(slot, prompt, 0, True)
        engine.execute(StepPlan(admitted=(Admission(slot, SamplingParams(), 1024),), prefills=(chunk,)))
    seconds = []
    for step in range(STEPS):
        began = time.perf_counter()
        engine.execute(StepPlan(decodes=tuple(Decode(slot, 5, CONTEXT_TOKENS + step) for slot in range(count))))
        seconds.append(time.perf_counter() - began)
    engine.execute(StepPlan(released=tuple(range(count))))
    return statistics.median(seconds)


def _read_bytes_per_second() -> float:
    """A copy reads and writes each byte."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return 2 * len(source) / min(seconds)


def _make_model(directory: Path) -> int:
    """Writes it and gives the bytes of what a step reads: all but the embedding, of which it reads a few rows."""
    config = LlamaConfig(
        vocab_size=32_000, hidden_size=HIDDEN, intermediate_size=5632, num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // HEAD_DIM, num_key_value_heads=KEY_HEADS, max_position_embeddings=2048,
        tie_word_embeddings=False,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.to(torch.bfloat16).save_pretrained(directory)
    return sum(p.nbytes for name, p in model.named_parameters() if "embed_tokens" not in name)
