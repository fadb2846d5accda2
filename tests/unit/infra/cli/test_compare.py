from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.cli import run
from tests.tiny_model import make_tiny_model


@pytest.fixture(autouse=True)
def _somewhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"DATA_DIR": "data", "CACHE_DIR": "cache"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", str(tmp_path / value))
    monkeypatch.setenv("PATH", "")  # no compiler: kernels would take half a minute


def compare(*arguments: str) -> int:
    return run(["models", "compare", *arguments])


def test_two_models_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tiny_model(tmp_path / "tiny")
    assert compare("./tiny:float32", "./tiny:bfloat16", "--seconds", "0.02") == 0
    said = capsys.readouterr().out
    assert "A tiny:float32   B tiny:bfloat16" in said
    for row in ("bits per byte", "perplexity", "same likeliest token", "KL(A || B)", "decode, 16 sequences", "prefill"):
        assert row in said
    assert "x 0.50" in said  # weights, and keys and values
    assert not (tmp_path / "data").exists()


def test_json_is_the_numbers_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tiny_model(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20, encoding="utf-8")
    assert compare("./tiny:float32", "./tiny:float32", "--text", "text.txt", "--seconds", "0.02", "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert (numbers["text"], numbers["same_tokens"]) == ("text.txt", True)
    assert numbers["a"]["perplexity"] == numbers["b"]["perplexity"]
    assert numbers["agreement"]["same_greedy"] == 1.0
    assert set(numbers["a"]["decode_tokens_per_second"]) == {"1", "16"}


def test_int8_takes_less_memory_for_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tiny_model(tmp_path / "tiny")
    assert compare("./tiny:float32", "./tiny:float32:int8", "--seconds", "0.02", "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["b"]["model"] == "tiny:float32:int8"
    assert numbers["b"]["weight_bytes"] < 0.6 * numbers["a"]["weight_bytes"]
    assert numbers["b"]["kv_bytes_per_token"] == numbers["a"]["kv_bytes_per_token"]
    assert 0.5 < numbers["agreement"]["same_greedy"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["echo", "echo"], 2, "'echo' runs on the echo engine, which tells no probabilities"),
        (["nobody", "echo"], 2, "neither a model's directory nor built in"),
        (["./nowhere", "echo"], 1, "no config.json"),
        (["echo:int3", "echo"], 2, "'echo:int3' names no model with a number format"),
        (["echo", "echo", "--text", "gone.txt"], 2, "--text 'gone.txt' can't be used: No such file"),
        (["echo"], 2, "Missing argument 'B'"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*arguments) == status
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_text_that_is_too_short_says_how_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_tiny_model(tmp_path / "tiny")
    (tmp_path / "short.txt").write_text("Hello.", encoding="utf-8")
    assert compare("./tiny", "./tiny:float32", "--text", "short.txt") == 1
    assert "tokens for tiny:bfloat16: a comparison needs at least 64" in capsys.readouterr().err
