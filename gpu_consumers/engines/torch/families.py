"""The model families that the engine computes: what each calls its parts, and how it differs from Llama.

A family is data. `assembly` reads a transformers model by it, and one forward pass (`model`) runs them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import Final

from transformers import PretrainedConfig

from gpu_consumers.engines.torch.activations import named
from gpu_consumers.errors import UnsupportedModelError


class NormKind(StrEnum):
    """RMS_OFFSET: RMS norm whose stored weight is the distance from one."""

    RMS = "rms"
    RMS_OFFSET = "rms_offset"
    LAYER = "layer"


@dataclass(frozen=True, slots=True)
class Family:
    """How transformers names the modules of a causal model, and what is done with them. The defaults are Llama's.

    model_type: as in the configuration.
    decoder and what follows it: paths of modules, the latter within the decoder; None where there is no such module.
    layers: where the decoder's layers are. The names after it are paths within a layer.
    qkv: the projections of query, key and value in this order, or one that holds them all. gate_up likewise; a plain
        MLP has one.
    transposed: weights lie [in, out], as GPT-2's do.
    activation, norm_epsilon: the names of their fields in the configuration.
    embedding_scale: what embeddings are multiplied with.
    """

    model_type: str
    decoder: str = "model"
    embedding: str = "embed_tokens"
    positions: str | None = None
    rotary: str | None = "rotary_emb"
    final_norm: str = "norm"

    layers: str = "layers"
    attention_norm: str = "input_layernorm"
    mlp_norm: str = "post_attention_layernorm"
    query_norm: str | None = None
    key_norm: str | None = None
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    attention_out: str = "self_attn.o_proj"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"

    transposed: bool = False
    gated: bool = True
    norm: NormKind = NormKind.RMS
    norm_epsilon: str = "rms_norm_eps"
    activation: str = "hidden_act"
    embedding_scale: Callable[[PretrainedConfig], float] | None = None


def _sqrt_of_hidden_size(config: PretrainedConfig) -> float:
    return sqrt(config.hidden_size)


FAMILIES: Final[dict[str, Family]] = {
    "LlamaForCausalLM": Family("llama"),
    "MistralForCausalLM": Family("mistral"),
    "Qwen2ForCausalLM": Family("qwen2"),
    "Qwen3ForCausalLM": Family("qwen3", query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
    "GemmaForCausalLM": Family("gemma", norm=NormKind.RMS_OFFSET, embedding_scale=_sqrt_of_hidden_size),
    "GPT2LMHeadModel": Family(
        "gpt2",
        decoder="transformer",
        embedding="wte",
        positions="wpe",
        rotary=None,
        final_norm="ln_f",
        layers="h",
        attention_norm="ln_1",
        mlp_norm="ln_2",
        qkv=("attn.c_attn",),
        attention_out="attn.c_proj",
        gate_up=("mlp.c_fc",),
        down="mlp.c_proj",
        transposed=True,
        gated=False,
        norm=NormKind.LAYER,
        norm_epsilon="layer_norm_epsilon",
        activation="activation_function",
    ),
}
"""By the architecture that a configuration names: those whose output tests hold against `generate()`."""

_ROPE_TYPES: Final = ("default", "linear", "llama3", "yarn")  # those whose angles depend on the position alone

_REFUSED_OPTIONS: Final = {
    "add_cross_attention": "attends to an encoder",
    "scale_attn_by_inverse_layer_idx": "scales attention by the layer's number",
    "use_bidirectional_attention": "attends to tokens that follow",
}
"""Options of a configuration that change the arithmetic, and that no family here computes."""


def family_of(config: PretrainedConfig) -> Family:
    """Raises UnsupportedModelError for a model that the engine would compute wrongly, and says what it does run."""
    architecture = (config.architectures or ["none"])[0]
    family = FAMILIES.get(architecture)
    if family is None:
        raise UnsupportedModelError(f"the model is a {architecture}; the torch engine runs {', '.join(FAMILIES)}")
    if config.model_type != family.model_type:
        raise UnsupportedModelError(
            f"the model is a {architecture}, whose model_type is {family.model_type!r}, "
            f"but its configuration says {config.model_type!r}: correct one of them"
        )
    for option, meaning in _REFUSED_OPTIONS.items():
        if getattr(config, option, None):
            raise UnsupportedModelError(f"the model {meaning} ({option}), which the torch engine does not")
    named(getattr(config, family.activation))
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in _ROPE_TYPES:
        raise UnsupportedModelError(
            f"the model's rotary embedding is {rope_type!r}; supported are {', '.join(_ROPE_TYPES)}"
        )
    if _slides(config):
        raise UnsupportedModelError("the model attends to a sliding window, which the torch engine does not")
    return family


def _slides(config: PretrainedConfig) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is not None
