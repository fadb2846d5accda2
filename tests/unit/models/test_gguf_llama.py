from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from models.errors import ModelConversionError
from models.gguf_llama import GgufLlama
from models.tokenizer import DirectoryTokenizer
from tests.tiny_model import tiny_tokenizer
from tests.unit.models.wheels import write_gguf


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_weights_and_configuration_are_those_that_transformers_reads(path: Path) -> None:
    gguf = GgufLlama(path)
    reference: Any = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)

    expected = reference.state_dict()
    weights = dict(gguf.weights())
    assert weights.keys() == expected.keys()
    assert all(torch.equal(torch.tensor(weight), expected[name]) for name, weight in weights.items())
    assert gguf.shapes() == {name: weight.shape for name, weight in weights.items()}
    known = reference.config.to_dict() | {"dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}
    assert {key: known[key] for key in gguf.config()} == gguf.config()


def test_the_tokenizer_is_byte_level_splits_digits_and_keeps_special_tokens_whole(path: Path) -> None:
    tokenizer = GgufLlama(path).tokenizer()
    text = "Größe 🌊 of ▁ 2024\n"

    ids = DirectoryTokenizer(tokenizer).encode(text)

    assert ids == tiny_tokenizer().encode(text).ids
    assert DirectoryTokenizer(tokenizer).decode(ids) == text
    assert tokenizer.encode("<|im_start|>").ids == [0]
    assert tokenizer.pre_tokenizer is not None
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("in 2024")] == [
        "in", "Ġ", "2", "0", "2", "4"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "words"),
    [({"tokenizer_pre": "llama-bpe"}, "'llama-bpe'"), ({"architecture": "qwen3"}, "'qwen3'")],
)
def test_a_model_of_another_kind_is_refused_by_name(tmp_path: Path, other: dict[str, str], words: str) -> None:
    path = write_gguf(tmp_path / "other.gguf", **other)

    with pytest.raises(ModelConversionError, match=words):
        GgufLlama(path)


@pytest.mark.parametrize("kept_bytes", [0, 3, 100, 5_000, -100])
def test_a_file_that_is_cut_short_is_refused(path: Path, tmp_path: Path, kept_bytes: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:kept_bytes])

    with pytest.raises(ModelConversionError, match=r"cut\.gguf is not a GGUF file"):
        GgufLlama(cut)
