"""A model directory in Hugging Face's layout -> a torch engine. Never asks a hub: what is not there is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.kv_memory import KvShape
from gpu_consumers.engines.torch.linear import Linear
from gpu_consumers.engines.torch.model import Layer, LlamaModel
from gpu_consumers.engines.torch.native import Kernels, kernels_for
from gpu_consumers.engines.torch.native.kernels import MAX_GROUP
from gpu_consumers.engines.torch.rotary import RotaryTable
from gpu_consumers.errors import EngineConfigurationError, ModelFilesMissingError, UnsupportedModelError

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

ARCHITECTURES: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
"""Those whose output tests hold against `generate()`."""

_ROPE_TYPES: Final = ("default", "linear", "llama3", "yarn")  # those whose angles depend on the position alone


def load_torch_engine(
    path: Path | str,
    *,
    dtype: str = "bfloat16",
    device: str = "cpu",
    slots: int = 16,
    max_context_tokens: int | None = None,
    max_step_tokens: int | None = None,
    threads: int | None = None,
    kernels_dir: Path | None = None,
    prefix_cache_bytes: int = 0,
) -> TorchEngine:
    """Load the model in directory `path`.

    dtype: "float32", "bfloat16" or "float16", of weights and KV memory alike.
    device: a torch device, such as "cpu" or "cuda:0".
    slots: sequences held at once; each may hold `max_context_tokens` (None: as many as the model was made for).
        `KvMemory` says what that costs.
    max_step_tokens: what `EngineInfo` tells the scheduler (None: 256 on a CPU, 2048 elsewhere, and one more for each
        slot: what decodes take must not make a prompt of 256 tokens need a second step).
    threads: torch's CPU threads, a setting of the whole process (None: as it is).
    kernels_dir: where kernels compiled for this machine are kept, and made if they are missing (None: torch's own
        operations do their work).
    prefix_cache_bytes: most memory for keys and values that are kept for sequences which begin alike (0: none).

    Raises ModelFilesMissingError, UnsupportedModelError or EngineConfigurationError.
    """
    torch_dtype, torch_device = _dtype(dtype), _device(device)
    if threads is not None:
        _at_least_one("threads", threads)
        torch.set_num_threads(threads)
    _at_least_one("slots", slots)
    config = _config(Path(path))
    _refuse_unsupported(config)
    context = _context(config, max_context_tokens)
    step_tokens = (256 if torch_device.type == "cpu" else 2048) + slots if max_step_tokens is None else max_step_tokens
    _at_least_one("max_step_tokens", step_tokens)
    loaded = _weights(Path(path), torch_dtype)
    info = EngineInfo(
        name="torch",
        slots=slots,
        max_context_tokens=context,
        max_step_tokens=step_tokens,
        vocabulary_size=config.vocab_size,
        eos_token_ids=eos_token_ids(config.eos_token_id, loaded.generation_config.eos_token_id),
    )
    kernels = None if kernels_dir is None else kernels_for(torch_dtype, torch_device.type, kernels_dir)
    model = build_model(loaded, context, torch_device, kernels)
    return TorchEngine(model, info, dtype=torch_dtype, device=torch_device, prefix_cache_bytes=prefix_cache_bytes)


def eos_token_ids(*sources: int | list[int] | None) -> frozenset[int]:
    """All the ids that end an answer, of sources that give none, one or several."""
    ids: set[int] = set()
    for source in sources:
        if source is not None:
            ids.update([source] if isinstance(source, int) else source)
    return frozenset(ids)


@torch.inference_mode()
def build_model(
    loaded: PreTrainedModel, max_context_tokens: int, device: torch.device, kernels: Kernels | None = None
) -> LlamaModel:
    """Fuse and pack the weights of a transformers model, which is left without its layers."""
    config = loaded.config
    decoder: Any = loaded.model
    query_heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // query_heads
    positions = torch.arange(max_context_tokens).unsqueeze(0)
    cos, sin = decoder.rotary_emb(torch.zeros(1, dtype=torch.float32), positions)
    embedding = decoder.embed_tokens.weight.detach().to(device)
    layers = []
    while decoder.layers:  # taken out one by one, so that no more than one layer is in memory twice
        layers.append(_layer(decoder.layers.pop(0), device))
    return LlamaModel(
        embedding=embedding,
        layers=tuple(layers),
        norm=decoder.norm.weight.detach().to(device),
        head=_linear([loaded.lm_head], device),
        rotary=RotaryTable(
            cos[0].to(device), sin[0].to(device), query_heads=query_heads, key_heads=config.num_key_value_heads
        ),
        query_heads=query_heads,
        kv_shape=KvShape(config.num_hidden_layers, config.num_key_value_heads, head_dim),
        norm_epsilon=config.rms_norm_eps,
        kernels=kernels if query_heads <= MAX_GROUP * config.num_key_value_heads else None,
    )


def _layer(layer: Any, device: torch.device) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        attention_norm=layer.input_layernorm.weight.detach().to(device),
        qkv=_linear([attention.q_proj, attention.k_proj, attention.v_proj], device),
        attention_out=_linear([attention.o_proj], device),
        mlp_norm=layer.post_attention_layernorm.weight.detach().to(device),
        gate_up=_linear([mlp.gate_proj, mlp.up_proj], device),
        down=_linear([mlp.down_proj], device),
    )


def _linear(projections: list[Any], device: torch.device) -> Linear:
    """Projections of one input as one."""
    biases: list[Tensor] = [p.bias.detach() for p in projections if p.bias is not None]
    weight = torch.cat([p.weight.detach() for p in projections]).to(device)
    return Linear(weight, torch.cat(biases).to(device) if biases else None)


def _config(path: Path) -> PretrainedConfig:
    file = path / "config.json"
    if not file.is_file():
        raise ModelFilesMissingError(
            f"no config.json in {str(path)!r}; give the directory of a model in Hugging Face's layout"
        )
    try:
        declared = json.loads(file.read_text(encoding="utf-8"))
        if "model_type" not in declared:
            raise ValueError("no model_type in it")
        return AutoConfig.from_pretrained(path, local_files_only=True)  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFilesMissingError(f"cannot read {str(file)!r}: {error}") from error


def _refuse_unsupported(config: PretrainedConfig) -> None:
    architecture = (config.architectures or ["none"])[0]
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(f"the model is a {architecture}; the torch engine runs {', '.join(ARCHITECTURES)}")
    if config.hidden_act != "silu":
        raise UnsupportedModelError(f"the model's activation is {config.hidden_act!r}; only 'silu' is supported")
    rope_type = (config.rope_parameters or {}).get("rope_type", "default")
    if rope_type not in _ROPE_TYPES:
        raise UnsupportedModelError(
            f"the model's rotary embedding is {rope_type!r}; supported are {', '.join(_ROPE_TYPES)}"
        )
    if _slides(config):
        raise UnsupportedModelError("the model attends to a sliding window, which the torch engine does not")


def _slides(config: PretrainedConfig) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is not None


def _context(config: PretrainedConfig, wanted: int | None) -> int:
    longest: int = config.max_position_embeddings
    if wanted is None:
        return longest
    _at_least_one("max_context_tokens", wanted)
    if wanted > longest:
        raise EngineConfigurationError(f"max_context_tokens is {wanted}; the model was made for {longest} tokens")
    return wanted


def _weights(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # its bar is over before it is read
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise ModelFilesMissingError(f"cannot read the weights in {str(path)!r}: {error}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would draw them at random, and say so in a log
        raise ModelFilesMissingError(
            f"{len(missing)} weights are not in {str(path)!r}: {', '.join(missing[:3])}, ...; fetch the model again"
        )
    return model  # type: ignore[no-any-return]


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
