from __future__ import annotations

from typing import Any

import pytest
from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, PretrainedConfig, SmolLM3Config

from gpu_consumers.engines.torch.families import FAMILIES, family_of
from gpu_consumers.engines.torch.layer_kinds import LayerKind, RotaryKind, layer_kinds, longest_context
from gpu_consumers.errors import UnsupportedModelError
from models.architectures import ARCHITECTURES


def test_the_list_without_torch_is_the_list() -> None:
    assert tuple(FAMILIES) == ARCHITECTURES


@pytest.mark.parametrize("architecture", ["LlamaForSequenceClassification", "T5ForConditionalGeneration"])
def test_what_is_not_in_the_list_is_refused_with_the_list(architecture: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"is a {architecture}; .* {', '.join(ARCHITECTURES)}"):
        family_of(LlamaConfig(architectures=[architecture]))


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"add_cross_attention": True}, "attends to an encoder"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scales attention by the layer's number"),
        ({"activation_function": "tanh"}, "activation is 'tanh'"),
    ],
)
def test_an_option_that_changes_the_arithmetic_is_refused(option: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        family_of(GPT2Config(architectures=["GPT2LMHeadModel"], **option))


def test_layers_differ_in_their_windows_and_in_what_turns_their_heads() -> None:
    gemma = Gemma3TextConfig(num_hidden_layers=6, sliding_window=32)
    local, wide = RotaryKind("sliding_attention"), RotaryKind("full_attention")
    assert layer_kinds(gemma, rotary=True) == (LayerKind(local, 32),) * 5 + (LayerKind(wide, None),)
    mistral = MistralConfig(num_hidden_layers=2, sliding_window=9)
    assert layer_kinds(mistral, rotary=True) == (LayerKind(RotaryKind(), 9),) * 2
    smollm3 = SmolLM3Config(num_hidden_layers=4)
    assert [kind.rotary.turns for kind in layer_kinds(smollm3, rotary=True)] == [True, True, True, False]
    assert layer_kinds(GPT2Config(n_layer=1), rotary=False) == (LayerKind(RotaryKind(turns=False), None),)


@pytest.mark.parametrize(
    ("config", "longest"), [(GPT2Config(n_positions=77), 77), (LlamaConfig(max_position_embeddings=99), 99)]
)
def test_a_context_is_as_long_as_there_are_positions(config: PretrainedConfig, longest: int) -> None:
    assert longest_context(config) == longest
