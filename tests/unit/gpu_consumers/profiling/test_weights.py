from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig

from gpu_consumers.errors import ModelFilesMissingError
from gpu_consumers.profiling.weights import model_costs
from tests.tiny_model import VOCABULARY_SIZE, make_tiny_model


def saved(directory: Path, config: PretrainedConfig) -> Path:
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)  # type: ignore[no-untyped-call]
    return directory


def test_a_llamas_matrices_its_head_and_its_keys_are_counted(tmp_path: Path) -> None:
    costs = model_costs(make_tiny_model(tmp_path, layers=3, hidden_size=64), "bfloat16")
    attention, mlp = 64 * (64 + 32 + 32) + 64 * 64, 3 * 64 * 128
    assert costs.body_weights == 3 * (attention + mlp)
    assert costs.head_weights == VOCABULARY_SIZE * 64
    assert costs.kv_bytes_per_token == 3 * 2 * 2 * 16 * 2
    assert costs.attention_flops == 4 * 3 * 64
    assert costs.weight_bytes == 2


def test_a_head_that_is_the_embedding_is_read_all_the_same(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        tie_word_embeddings=True,
    )  # fmt: skip
    assert model_costs(saved(tmp_path, config), "float32").head_weights == 100 * 32


def test_gpt2s_other_names_are_known_and_its_tables_are_not_read(tmp_path: Path) -> None:
    costs = model_costs(
        saved(tmp_path, GPT2Config(vocab_size=90, n_positions=32, n_embd=32, n_layer=2, n_head=2)), "float32"
    )
    assert costs.body_weights == 2 * (32 * 96 + 32 * 32 + 2 * 32 * 128)
    assert costs.head_weights == 90 * 32
    assert costs.kv_bytes_per_token == 2 * 2 * 32 * 4


def test_quantized_weights_weigh_less_and_keys_do_not(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path)
    whole, quantized = model_costs(directory, "bfloat16"), model_costs(directory, "bfloat16", weight_bytes=1)
    assert quantized.weights_bytes == whole.weights_bytes / 2
    assert quantized.kv_bytes_per_token == whole.kv_bytes_per_token


def test_a_directory_without_weights_or_with_broken_ones_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesMissingError, match=r"no \*\.safetensors"):
        model_costs(tmp_path, "float32")
    (tmp_path / "model.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0{{{{{")
    with pytest.raises(ModelFilesMissingError, match=r"cannot read .*model\.safetensors"):
        model_costs(tmp_path, "float32")
