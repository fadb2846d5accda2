"""The logits themselves against transformers': what leaves the greedy choice as it is shows here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.assembly import build_model
from gpu_consumers.engines.torch.batch import build_batch
from gpu_consumers.engines.torch.blocks import BLOCK_TOKENS
from gpu_consumers.engines.torch.checkpoint import read_config, read_weights
from gpu_consumers.engines.torch.families import family_of
from gpu_consumers.engines.torch.kv_memory import KvMemory
from gpu_consumers.engines.torch.native import kernels_for
from gpu_consumers.plan import Decode, PrefillChunk
from tests.unit.gpu_consumers.engines.torch.conftest import VARIANTS, VOCABULARY

Directory = Callable[[str], Path]
CPU = torch.device("cpu")
CONTEXT = 128
TOKENS = tuple(3 + (i * i + 5 * i) % (VOCABULARY - 3) for i in range(91))


@torch.inference_mode()
def ours(directory: Path, dtype: torch.dtype, kernels_dir: Path | None = None) -> torch.Tensor:
    """Logits after 50, 90 and 91 tokens, in two chunks and a decode: [3, vocabulary]."""
    kernels = None if kernels_dir is None else kernels_for(dtype, "cpu", kernels_dir)
    model = build_model(read_weights(directory, dtype), family_of(read_config(directory)), CONTEXT, CPU, kernels)
    memory = KvMemory(model.kv_shape, blocks=CONTEXT // BLOCK_TOKENS, dtype=dtype, device=CPU)
    logits = []
    for work in (
        StepWork((PrefillChunk(0, TOKENS[:50], 0, True),), (), {}),
        StepWork((PrefillChunk(0, TOKENS[50:90], 50, True),), (), {}),
        StepWork((), (Decode(0, TOKENS[90], 90),), {}),
    ):
        memory.make_room({0: 91})
        batch = build_batch(
            work, memory, query_heads=model.query_heads, dtype=dtype, windows={rule.window for rule in model.rules},
            compiled=model.kernels is not None,
        )  # fmt: skip
        step = model.forward(batch, memory)
        assert step is not None
        logits.append(step)
    return torch.cat(logits).float()


@torch.inference_mode()
def expected(directory: Path) -> torch.Tensor:
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.set_attn_implementation("eager")
    logits: torch.Tensor = model(torch.tensor([TOKENS])).logits[0]
    return logits[[49, 89, 90]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_transformers(model_directory: Directory, variant: str) -> None:
    directory = model_directory(variant)
    theirs = expected(directory)
    torch.testing.assert_close(ours(directory, torch.float32), theirs, rtol=1e-3, atol=1e-4 * float(theirs.std()))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dtype", "compiled", "least"),
    [(torch.float16, False, 0.9995), (torch.bfloat16, False, 0.98), (torch.bfloat16, True, 0.98)],
)
def test_in_half_precision_logits_point_the_same_way(
    model_directory: Directory, kernels_dir: Path, variant: str, dtype: torch.dtype, compiled: bool, least: float
) -> None:
    directory = model_directory(variant)
    halves = ours(directory, dtype, kernels_dir if compiled else None)
    assert float(torch.cosine_similarity(halves, expected(directory)).min()) > least
