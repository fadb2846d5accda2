"""The model families that the engine computes: what each calls its parts, and how it differs from Llama.

A family is data. `assembly` reads a transformers model by it, and one forward pass (`model`) runs them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from typing import Final

from transformers import PretrainedConfig

from gpu_consumers.engines.torch.activations import named
from gpu_consumers.engines.torch.layer_kinds import layer_kinds, refuse_unknown_angles
from gpu_consumers.errors import UnsupportedModelError


class NormKind(StrEnum):
    """RMS_OFFSET: RMS norm whose stored weight is the distance from one."""

    RMS = "rms"
    RMS_OFFSET = "rms_offset"
    LAYER = "layer"


@dataclass(frozen=True, slots=True)
class Family:
    """How transformers names the modules of a causal model, and what is done with them. The defaults are Llama's.

    model_types: as in the configuration: what transformers makes the same modules of.
    decoder and what follows it: paths of modules, the latter within the decoder; None where there is no such module.
    layers: where the decoder's layers are. The names after it are paths within a layer.
    qkv: the projections of query, key and value in this order, or one that holds them all. gate_up likewise; a plain
        MLP has one.
    transposed: weights lie [in, out], as GPT-2's do.
    norm_epsilon, activation, attention_softcap, logit_softcap: the names of their fields in the configuration.
    embedding_scale: what embeddings are multiplied with. query_scale: what scores are (None: head_dim ** -0.5).
    """

    model_types: tuple[str, ...]
    decoder: str = "model"
    embedding: str = "embed_tokens"
    positions: str | None = None
    rotary: str | None = "rotary_emb"
    final_norm: str = "norm"

    layers: str = "layers"
    attention_norm: str = "input_layernorm"
    attention_post_norm: str | None = None
    mlp_norm: str = "post_attention_layernorm"
    mlp_post_norm: str | None = None
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
    query_scale: Callable[[PretrainedConfig], float] | None = None
    attention_softcap: str | None = None
    logit_softcap: str | None = None


def _sqrt_of_hidden_size(config: PretrainedConfig) -> float:
    return sqrt(config.hidden_size)


def _query_scale_of_gemma(config: PretrainedConfig) -> float:
    return float(config.query_pre_attn_scalar**-0.5)


def _query_scale_of_gpt2(config: PretrainedConfig) -> float:
    return float((config.hidden_size // config.num_attention_heads) ** -0.5) if config.scale_attn_weights else 1.0


_LLAMA: Final = Family(("llama",))

_GEMMA_2: Final = replace(
    _LLAMA,
    model_types=("gemma2",),
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    norm=NormKind.RMS_OFFSET,
    activation="hidden_activation",
    embedding_scale=_sqrt_of_hidden_size,
    query_scale=_query_scale_of_gemma,
    attention_softcap="attn_logit_softcapping",
    logit_softcap="final_logit_softcapping",
)

FAMILIES: Final[dict[str, Family]] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": replace(_LLAMA, model_types=("mistral", "ministral")),
    "MinistralForCausalLM": replace(_LLAMA, model_types=("ministral",)),
    "SmolLM3ForCausalLM": replace(_LLAMA, model_types=("smollm3",)),
    "Qwen2ForCausalLM": replace(_LLAMA, model_types=("qwen2",)),
    "Qwen3ForCausalLM": replace(
        _LLAMA, model_types=("qwen3",), query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"
    ),
    "Phi3ForCausalLM": replace(
        _LLAMA, model_types=("phi3",), qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)
    ),
    "GemmaForCausalLM": replace(
        _LLAMA, model_types=("gemma",), norm=NormKind.RMS_OFFSET, embedding_scale=_sqrt_of_hidden_size
    ),
    "Gemma2ForCausalLM": _GEMMA_2,
    "Gemma3ForCausalLM": replace(
        _GEMMA_2,
        model_types=("gemma3_text",),
        query_norm="self_attn.q_norm",
        key_norm="self_attn.k_norm",
        attention_softcap=None,
    ),
    "Starcoder2ForCausalLM": replace(
        _LLAMA,
        model_types=("starcoder2",),
        gate_up=("mlp.c_fc",),
        down="mlp.c_proj",
        gated=False,
        norm=NormKind.LAYER,
        norm_epsilon="norm_epsilon",
    ),
    "GPT2LMHeadModel": Family(
        ("gpt2",),
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
        query_scale=_query_scale_of_gpt2,
    ),
}
"""By the architecture that a configuration names: those whose output tests hold against `generate()`."""

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
    if config.model_type not in family.model_types:
        raise UnsupportedModelError(
            f"the model is a {architecture}, whose model_type is {' or '.join(map(repr, family.model_types))}, "
            f"but its configuration says {config.model_type!r}: correct one of them"
        )
    for option, meaning in _REFUSED_OPTIONS.items():
        if getattr(config, option, None):
            raise UnsupportedModelError(f"the model {meaning} ({option}), which the torch engine does not")
    named(getattr(config, family.activation))
    refuse_unknown_angles(config)
    layer_kinds(config, rotary=family.rotary is not None)
    return family
