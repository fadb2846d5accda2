"""What one layer of a model has that another has not: how far it looks back, and what turns its heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transformers import PretrainedConfig

from gpu_consumers.engines.torch.attention_rule import Window
from gpu_consumers.errors import UnsupportedModelError

FULL, SLIDING = "full_attention", "sliding_attention"  # as in `layer_types` of a configuration

_ROPE_TYPES: Final = ("default", "linear", "llama3", "yarn")  # those whose angles depend on the position alone
_LONG_ROPE: Final = "longrope"  # other angles for longer sequences, but the same for all up to the original length


@dataclass(frozen=True, slots=True)
class RotaryKind:
    """layer_type: for a model that has other angles for each type of layer. turns: False for an angle of zero."""

    layer_type: str | None = None
    turns: bool = True


@dataclass(frozen=True, slots=True)
class LayerKind:
    rotary: RotaryKind
    window: Window


def layer_kinds(config: PretrainedConfig, *, rotary: bool) -> tuple[LayerKind, ...]:
    """For each layer in order. rotary: whether the family has rotary embeddings at all.

    Raises UnsupportedModelError for a type of layer that the engine does not compute.
    """
    by_type = FULL in rope_parameters(config)
    return tuple(
        LayerKind(
            RotaryKind(kind if by_type else None, rotary and bool(turns)),
            config.sliding_window if kind == SLIDING else None,
        )
        for kind, turns in zip(_layer_types(config), _turning(config), strict=True)
    )


def rope_parameters(config: PretrainedConfig) -> Mapping[str, Any]:
    """Of all layers, or by type of layer; empty where there are none."""
    return getattr(config, "rope_parameters", None) or {}


def refuse_unknown_angles(config: PretrainedConfig) -> None:
    """Raises UnsupportedModelError for a rotary embedding whose angles depend on more than the position."""
    for rope_type in _rope_types(config):
        if rope_type not in (*_ROPE_TYPES, _LONG_ROPE):
            known = ", ".join((*_ROPE_TYPES, _LONG_ROPE))
            raise UnsupportedModelError(f"the model's rotary embedding is {rope_type!r}; supported are {known}")


def longest_context(config: PretrainedConfig) -> int:
    """How many tokens a sequence may have: as many positions as there are embeddings for, or angles that stay."""
    longest: int = config.max_position_embeddings
    if _LONG_ROPE in _rope_types(config):
        longest = min(longest, rope_parameters(config)["original_max_position_embeddings"])
    return longest


def _rope_types(config: PretrainedConfig) -> list[str]:
    parameters = rope_parameters(config)
    kinds = [parameters[kind] for kind in (FULL, SLIDING) if kind in parameters] or [parameters]
    return [kind.get("rope_type", "default") for kind in kinds]


def _layer_types(config: PretrainedConfig) -> list[str]:
    types = getattr(config, "layer_types", None)
    if types is None:
        slides = getattr(config, "sliding_window", None) is not None
        types = [SLIDING if slides else FULL] * config.num_hidden_layers
    unknown = sorted(set(types) - {FULL, SLIDING})
    if unknown:
        raise UnsupportedModelError(
            f"the model has layers of {', '.join(unknown)}; the torch engine computes {FULL} and {SLIDING}"
        )
    return types


def _turning(config: PretrainedConfig) -> list[int]:
    """1 for a layer whose heads turn, 0 for one without rotary embedding (SmolLM3 has both)."""
    return getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
