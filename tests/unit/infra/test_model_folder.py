"""What is in the folder of a model that is registered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.errors import ModelFolderInvalid
from infra.model_folder import CONFIG, context_tokens_of, unseen_context_tokens

LONG_ROPE = {
    "architectures": ["Phi3ForCausalLM"],
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "su"},
}


def folder_of(folder: Path, config: object) -> Path:
    (folder / CONFIG).write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "wanted", "engine", "context"),
    [
        ({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072}, None, "torch", 8192),
        ({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072}, 100_000, "torch", 100_000),
        ({"architectures": ["GPT2LMHeadModel"], "n_positions": 1024}, None, "torch", 1024),
        ({"architectures": ["GPT2LMHeadModel"], "n_positions": 1024}, 300, "torch", 300),
        ({"architectures": ["LlamaForCausalLM"]}, None, "torch", 8192),
        ({"architectures": ["MambaForCausalLM"], "max_position_embeddings": 2048}, None, "vllm", 2048),
        (LONG_ROPE, None, "torch", 4096),
        (LONG_ROPE, 100_000, "vllm", 100_000),
    ],
)
def test_the_context_is_what_is_wanted_or_what_the_model_was_made_for(
    tmp_path: Path, config: object, wanted: int | None, engine: str, context: int
) -> None:
    assert context_tokens_of(folder_of(tmp_path, config), wanted, engine) == context


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "can't be read"),
        ([], "is no object"),
        ({}, "it holds a None, and the torch engine runs LlamaForCausalLM, "),
        ({"architectures": ["T5ForConditionalGeneration"]}, "it holds a T5ForConditionalGeneration"),
        ({"architectures": ["GPT2LMHeadModel"], "n_positions": 1024}, "made for 1024 tokens, and 4097 are wanted"),
        (LONG_ROPE, "made for 4096 tokens, and 4097 are wanted"),
    ],
)
def test_a_model_that_can_not_be_served_is_refused(tmp_path: Path, config: object, problem: str) -> None:
    with pytest.raises(ModelFolderInvalid, match=problem):
        context_tokens_of(folder_of(tmp_path, config), 4097, "torch")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"it has no config\.json"):
        context_tokens_of(tmp_path, None, "torch")
    with pytest.raises(ModelFolderInvalid, match="there is no such folder"):
        context_tokens_of(tmp_path / "gone", None, "vllm")


def test_a_folder_that_is_elsewhere_is_believed() -> None:
    assert (unseen_context_tokens(None), unseen_context_tokens(99)) == (8192, 99)
