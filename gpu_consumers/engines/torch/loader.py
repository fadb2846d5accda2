"""A model directory in Hugging Face's layout -> a torch engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.torch.assembly import build_model
from gpu_consumers.engines.torch.checkpoint import eos_token_ids, read_config, read_weights
from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.families import family_of
from gpu_consumers.engines.torch.flash import can_flash
from gpu_consumers.engines.torch.int8 import QUANTIZATIONS, product_maker
from gpu_consumers.engines.torch.kv_memory import PAGED, KvLayout
from gpu_consumers.engines.torch.kv_size import cuda_budget_bytes, host_budget_bytes, kv_blocks
from gpu_consumers.engines.torch.layer_kinds import longest_context
from gpu_consumers.engines.torch.native import kernels_for
from gpu_consumers.engines.torch.parallel.ranks import Ranks
from gpu_consumers.errors import EngineConfigurationError

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_torch_engine(
    path: Path | str,
    *,
    dtype: str = "bfloat16",
    quantization: str = "none",
    device: str = "cpu",
    slots: int = 16,
    max_context_tokens: int | None = None,
    max_step_tokens: int | None = None,
    threads: int | None = None,
    kernels_dir: Path | None = None,
    kv_cache_bytes: int | None = None,
    prefix_cache_bytes: int = 0,
    adapter_places: int = 0,
    adapter_max_rank: int = 64,
    ranks: Ranks | None = None,
) -> TorchEngine:
    """Load the model in directory `path`.

    dtype: "float32", "bfloat16" or "float16", of weights and KV memory alike.
    quantization: "int8" for the weights of all matrix products in int8 (see `int8`), "none" for `dtype`.
    device: a torch device, such as "cpu" or "cuda:0".
    slots: sequences held at once; each may come to `max_context_tokens` (None: as many as the model was made for), as
        long as all of them together fit into the KV memory. Whoever plans counts `EngineInfo.kv_blocks`.
    max_step_tokens: what `EngineInfo` tells the scheduler (None: 256 on a CPU, 2048 elsewhere, and one more for each
        slot: what decodes take must not make a prompt of 256 tokens need a second step).
    threads: torch's CPU threads, a setting of the whole process (None: as it is).
    kernels_dir: where kernels compiled for this machine are kept, and made if they are missing (None: torch's own
        operations do their work).
    kv_cache_bytes: memory for keys and values. None: on a CPU half of what is available now, on CUDA what weights and
        the largest step leave, less a margin (`kv_size`). Never more than all slots can use.
    prefix_cache_bytes: most of it for keys and values that are kept for sequences which begin alike (0: none).
    adapter_places, adapter_max_rank: LoRA adapters that are held at once, and the highest rank that one may have. Ranks
        that share a model hold none.
    ranks: those that share the model, each in a process of its own (`parallel.load_sharded`); None: all of it is here.

    Raises ModelFilesMissingError, UnsupportedModelError or EngineConfigurationError.
    """
    torch_dtype, torch_device = _dtype(dtype), _device(device)
    if quantization not in QUANTIZATIONS:
        raise EngineConfigurationError(f"quantization is {quantization!r}; choose one of {', '.join(QUANTIZATIONS)}")
    if threads is not None:
        _at_least_one("threads", threads)
        torch.set_num_threads(threads)
    _at_least_one("slots", slots)
    config = read_config(Path(path))
    family = family_of(config)
    context = _context(longest_context(config), max_context_tokens)
    step_tokens = (256 if torch_device.type == "cpu" else 2048) + slots if max_step_tokens is None else max_step_tokens
    _at_least_one("max_step_tokens", step_tokens)
    loaded = read_weights(Path(path), torch_dtype)
    info = EngineInfo(
        name="torch",
        slots=slots,
        max_context_tokens=context,
        max_step_tokens=step_tokens,
        vocabulary_size=config.vocab_size,
        eos_token_ids=eos_token_ids(config.eos_token_id, loaded.generation_config.eos_token_id),
    )
    kernels = None if kernels_dir is None else kernels_for(torch_dtype, torch_device.type, kernels_dir)
    make = product_maker(quantization, kernels)
    model = build_model(loaded, family, context, torch_device, kernels, ranks, make)
    layout = PAGED if can_flash(torch_device, torch_dtype, model.kv_shape.head_dim, model.rules) else KvLayout()

    def open_engine(blocks: int) -> TorchEngine:
        return TorchEngine(
            model,
            replace(info, kv_blocks=blocks, block_tokens=layout.block_tokens),
            dtype=torch_dtype,
            device=torch_device,
            layout=layout,
            prefix_cache_bytes=prefix_cache_bytes,
            adapter_places=adapter_places if ranks is None else 0,
            adapter_max_rank=adapter_max_rank,
            records_graphs=ranks is None,
        )

    budget_bytes = kv_cache_bytes
    if budget_bytes is None and torch_device.type == "cuda":
        budget_bytes = cuda_budget_bytes(open_engine, info, layout)
    elif budget_bytes is None:
        budget_bytes = host_budget_bytes(1 if ranks is None else ranks.shard.size)
    if ranks is not None:
        budget_bytes = ranks.least(budget_bytes)  # all keep the same books
    return open_engine(kv_blocks(info, model.kv_shape, layout, torch_dtype, budget_bytes))


def _context(longest: int, wanted: int | None) -> int:
    if wanted is None:
        return longest
    _at_least_one("max_context_tokens", wanted)
    if wanted > longest:
        raise EngineConfigurationError(f"max_context_tokens is {wanted}; the model was made for {longest} tokens")
    return wanted


def _dtype(name: str) -> torch.dtype:
    try:
        return DTYPES[name]
    except KeyError:
        raise EngineConfigurationError(f"dtype is {name!r}; choose one of {', '.join(DTYPES)}") from None


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineConfigurationError(f"device is {name!r}, which torch does not know: {error}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EngineConfigurationError(f"device is {name!r}, but torch finds no CUDA device here; use 'cpu'")
    return device


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise EngineConfigurationError(f"{name} is {value}; it must be at least 1")
