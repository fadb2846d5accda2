"""Which engine serves a model: by the kind that its registration names."""

from __future__ import annotations

from functools import partial

from gpu_consumers.engine import Engine
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.errors import DeploymentUnknownError
from gpu_consumers.settings import WorkerSettings
from models.tokenizer import Tokenizer
from schemas.events import ModelRegistered


def open_engine(model: ModelRegistered, settings: WorkerSettings, tokenizer: Tokenizer | None = None) -> Engine:
    """The engine with its weights loaded. Raises GpuConsumerError with what to do about it.

    tokenizer: the model's own; without it the torch engine can't hold answers to JSON schemas.
    """
    match model.engine:
        case "echo":
            return EchoEngine(
                slots=settings.slots,
                max_context_tokens=model.context_tokens,
                max_step_tokens=settings.max_step_tokens or max(8192, settings.slots),
                tokens_per_second=settings.echo_tokens_per_second,
            )
        case "torch":
            from gpu_consumers.engines.torch import load_torch_engine  # only here: torch takes seconds to import

            load = partial(
                load_torch_engine,
                model.location,
                dtype=settings.dtype,
                quantization=settings.quantization,
                slots=settings.slots,
                max_context_tokens=model.context_tokens,
                max_step_tokens=settings.max_step_tokens,
                threads=settings.threads,
                kernels_dir=settings.kernels_dir,
                kv_cache_bytes=settings.kv_cache_bytes,
                prefix_cache_bytes=settings.prefix_cache_bytes,
                adapter_places=settings.adapter_places,
                adapter_max_rank=settings.adapter_max_rank,
            )
            if settings.tensor_parallel == 1:
                engine = load(device=settings.device)
            else:
                from gpu_consumers.engines.torch.parallel.followers import load_sharded

                engine = load_sharded(settings.tensor_parallel, settings.device, load)
            if tokenizer is not None:
                engine.guide(tokenizer)
            return engine
        case "vllm":
            from gpu_consumers.engines.vllm import open_vllm_engine

            return open_vllm_engine(
                model.location,
                dtype=settings.dtype,
                slots=settings.slots,
                max_context_tokens=model.context_tokens,
                max_step_tokens=settings.max_step_tokens,
                adapter_places=settings.adapter_places,
                adapter_max_rank=settings.adapter_max_rank,
            )
    raise DeploymentUnknownError(
        f"{model.model_version} is registered with the engine {model.engine!r}; this worker has echo, torch and vllm"
    )
