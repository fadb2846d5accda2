"""Random models small enough to make in a test, one for each way in which the supported ones differ."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
    Starcoder2Config,
)

VOCABULARY = 120

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,  # with the default each request repeats one token, and equality proves nothing
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GPT2: dict[str, Any] = {name: _COMMON[name] for name in ("vocab_size", "initializer_range")} | {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "bos_token_id": None,
    "eos_token_id": 2,
}


_MIXED = ["sliding_attention", "full_attention"]
_GEMMA = _COMMON | {"head_dim": 24, "layer_types": _MIXED, "sliding_window": 40, "query_pre_attn_scalar": 30}
_LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "short_factor": [1.0, 1.1, 1.3, 1.6],
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 256,
}


def _configurations() -> dict[str, PretrainedConfig]:
    return {
        "grouped": LlamaConfig(**_COMMON),
        "ungrouped": LlamaConfig(**_COMMON | {"num_key_value_heads": 4}),
        "one key head": LlamaConfig(**_COMMON | {"num_key_value_heads": 1}),
        "tied": LlamaConfig(**_COMMON | {"tie_word_embeddings": True}),
        "wide heads": LlamaConfig(**_COMMON | {"head_dim": 24}),
        "biased": LlamaConfig(**_COMMON | {"attention_bias": True, "mlp_bias": True}),
        "scaled rotary": LlamaConfig(**_COMMON | {"rope_parameters": _LLAMA3}),
        "mistral": MistralConfig(**_COMMON | {"sliding_window": None}),
        "mistral, sliding": MistralConfig(**_COMMON | {"sliding_window": 40}),
        "ministral": MinistralConfig(**_COMMON | {"head_dim": 16, "sliding_window": 70, "layer_types": _MIXED}),
        "smollm3": SmolLM3Config(**_COMMON | {"no_rope_layers": [1, 0]}),
        "qwen2": Qwen2Config(**_COMMON | {"use_sliding_window": False}),
        "qwen3": Qwen3Config(**_COMMON | {"head_dim": 24}),
        "qwen3, sliding": Qwen3Config(
            **_COMMON | {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}
        ),
        "phi3": Phi3Config(**_COMMON),
        "phi3, partly turning": Phi3Config(
            **_COMMON | {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 256}
        ),
        "gemma": GemmaConfig(**_COMMON | {"head_dim": 24}),
        "gemma2": Gemma2Config(**_GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 9.0}),
        "gemma3": Gemma3TextConfig(**_GEMMA),
        "starcoder2": Starcoder2Config(**_COMMON),
        "gpt2": GPT2Config(**_GPT2 | {"n_inner": 96}),
        "gpt2 with a head of its own": GPT2Config(**_GPT2 | {"tie_word_embeddings": False}),
    }


VARIANTS = tuple(_configurations())


@pytest.fixture(scope="session")
def kernels_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled kernels are, made by the first who asks."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here to compile the kernels with")
    return tmp_path_factory.mktemp("kernels")


_from_config: Any = AutoModelForCausalLM.from_config  # untyped in transformers


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a variant, made when it is first asked for."""

    @cache
    def make(variant: str) -> Path:
        directory = tmp_path_factory.mktemp("model")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(11)
            model: Any = _from_config(_configurations()[variant])
            for name, parameter in model.named_parameters():
                if name.endswith("bias") or re.search(r"(norm|ln_\w)\.weight", name):
                    # Zeros and ones by default: they'd be left out unseen.
                    torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.2)
                elif "wpe" in name:  # as it is, a tied head gives back the token that was read
                    torch.nn.init.normal_(parameter, std=2.0)
        model.save_pretrained(directory)
        return directory

    return make
