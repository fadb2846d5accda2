from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_consumers.engines.torch.checkpoint import eos_token_ids
from gpu_consumers.engines.torch.loader import load_torch_engine
from gpu_consumers.errors import (
    EngineConfigurationError,
    GpuConsumerError,
    ModelFilesMissingError,
    UnsupportedModelError,
)

Directory = Callable[[str], Path]


@pytest.fixture
def directory(tmp_path: Path, model_directory: Directory) -> Path:
    """A model's directory that a test may spoil."""
    return shutil.copytree(model_directory("grouped"), tmp_path / "model")


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_the_engine_says_what_the_scheduler_must_know(directory: Path) -> None:
    edit(directory / "generation_config.json", eos_token_id=[2, 5])
    info = load_torch_engine(str(directory), dtype="float32", slots=3, max_context_tokens=99, threads=1).info
    assert (info.name, info.slots, info.max_context_tokens) == ("torch", 3, 99)
    assert (info.vocabulary_size, info.max_step_tokens) == (120, 256 + info.slots)
    assert info.eos_token_ids == {2, 5}


def test_the_context_is_the_model_s_own_unless_it_is_given(directory: Path) -> None:
    info = load_torch_engine(directory, dtype="float32", slots=1, max_step_tokens=64).info
    assert (info.max_context_tokens, info.max_step_tokens) == (512, 64)


def test_ends_of_answer_are_gathered_from_none_one_or_several() -> None:
    assert eos_token_ids(None, 3, [4, 5], None) == {3, 4, 5}
    assert eos_token_ids(None, None) == frozenset()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesMissingError, match=r"no config\.json in .*nowhere"):
        load_torch_engine(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": "unheard-of"}'])
def test_a_spoilt_configuration_is_named(directory: Path, text: str) -> None:
    (directory / "config.json").write_text(text)
    with pytest.raises(ModelFilesMissingError, match=r"cannot read .*config\.json"):
        load_torch_engine(directory)


def test_missing_weights_are_named(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    with pytest.raises(ModelFilesMissingError, match="cannot read the weights"):
        load_torch_engine(directory)


def test_truncated_weights_are_named(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelFilesMissingError, match="cannot read the weights"):
        load_torch_engine(directory)


def test_weights_that_lack_a_layer_are_named(directory: Path) -> None:
    edit(directory / "config.json", num_hidden_layers=3)
    with pytest.raises(ModelFilesMissingError, match=r"weights are not in .*model\.layers\.2\.input_layernorm"):
        load_torch_engine(directory)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["T5Model"]}, r"the model is a T5Model; .* LlamaForCausalLM, .*, GPT2LMHeadModel"),
        ({"architectures": ["GPT2LMHeadModel"]}, "whose model_type is 'gpt2', but its configuration says 'llama'"),
        ({"architectures": None}, "the model is a none"),
        ({"hidden_act": "tanh"}, "activation is 'tanh'; supported are silu, "),
        ({"layer_types": ["full_attention", "linear_attention"]}, "has layers of linear_attention"),
        ({"use_bidirectional_attention": True}, "attends to tokens that follow"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "'dynamic'"),
    ],
)
def test_a_model_that_it_would_compute_wrongly_is_refused(
    directory: Path, changes: dict[str, object], reason: str
) -> None:
    edit(directory / "config.json", **changes)
    with pytest.raises(UnsupportedModelError, match=reason):
        load_torch_engine(directory)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "int3"}, "dtype is 'int3'; choose one of float32, bfloat16, float16"),
        ({"device": "abacus"}, "device is 'abacus'"),
        ({"slots": 0}, "slots is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"max_context_tokens": 0}, "max_context_tokens is 0"),
        ({"max_context_tokens": 513}, "the model was made for 512 tokens"),
        ({"max_step_tokens": 0}, "max_step_tokens is 0"),
    ],
)
def test_an_impossible_option_is_named(directory: Path, options: dict[str, int], reason: str) -> None:
    with pytest.raises(EngineConfigurationError, match=reason):
        load_torch_engine(directory, **options)  # type: ignore[arg-type]


def test_codes_are_stable() -> None:
    kinds = (GpuConsumerError, ModelFilesMissingError, UnsupportedModelError, EngineConfigurationError)
    assert [kind.code for kind in kinds] == [
        "gpu_consumer_error",
        "model_files_missing",
        "unsupported_model",
        "engine_configuration",
    ]
