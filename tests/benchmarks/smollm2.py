"""The model, the prompts and the baseline that the benches of the engine share."""

from __future__ import annotations

import random
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from infra.settings import load_settings
from models.smollm2 import ensure_smollm2

OUTPUT_TOKENS: Final = 64

Prompts = list[tuple[int, ...]]


def smollm2_engine(
    *, slots: int = 32, prefix_cache_bytes: int = 0, adapter_places: int = 0, quantization: str = "none"
) -> TorchEngine:
    """Ours, warm, in bf16 with the compiled kernels."""
    cache_dir = load_settings()[0].cache_dir
    engine = load_torch_engine(
        ensure_smollm2(cache_dir, lambda progress: None),
        dtype="bfloat16",
        quantization=quantization,
        slots=slots,
        max_context_tokens=2048,
        kernels_dir=cache_dir / "kernels",
        prefix_cache_bytes=prefix_cache_bytes,
        adapter_places=adapter_places,
    )
    engine.warm_up()
    return engine


def smollm2_transformers() -> Any:
    """The same weights as transformers' own model."""
    directory = ensure_smollm2(load_settings()[0].cache_dir, lambda progress: None)
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, local_files_only=True)


def mixed_prompts(count: int) -> Prompts:
    """Of 16 to 256 tokens, drawn at random and always the same."""
    rng = random.Random(count)
    return [tuple(rng.randrange(10, 49_000) for _ in range(rng.randrange(16, 257))) for _ in range(count)]


def continuous_batching(model: Any, prompts: Prompts) -> list[Any]:
    """Transformers' continuous batching with the best of the settings tried for this load: its outputs, with times.

    Its default cache size and batch are for a GPU's memory and reach two thirds of this on two CPU cores.
    """
    generation: Any = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=OUTPUT_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    made = model.generate_batch(
        [list(prompt) for prompt in prompts],
        generation_config=generation,
        continuous_batching_config=ContinuousBatchingConfig(block_size=32, num_blocks=400, max_batch_tokens=256),
        record_timestamps=True,
    )
    return list(made.values())
