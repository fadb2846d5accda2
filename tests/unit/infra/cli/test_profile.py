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


def test_a_directory_is_profiled_and_leaves_a_picture_and_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tiny_model(tmp_path / "model")
    arguments = ["./model", "--dtype", "float32", "--slots", "4", "--prompt-tokens", "16", "--output-tokens", "8"]
    assert run(["profile", *arguments, "--seconds", "0.5", "--trace", "trace.json"]) == 0
    said = capsys.readouterr().out
    assert "model on the torch engine, float32, CPU" in said
    assert "-bound\n" in said or "etween " in said
    assert "Picture: headrace-profile.svg" in said
    assert "Trace:   trace.json" in said
    assert "aten::" in said
    assert (tmp_path / "headrace-profile.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert not (tmp_path / "data").exists()


def test_json_is_the_numbers_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["profile", "echo", "--rate", "50", "--seconds", "0.3", "--json", "--picture", "p.svg"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert (numbers["engine"], numbers["reference"], numbers["load"]["rate"]) == ("echo", None, 50.0)
    assert (tmp_path / "p.svg").is_file()


def test_weights_in_int8_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model")
    arguments = ["./model", "--dtype", "float32", "--quantization", "int8", "--prompt-tokens", "8", "--requests", "4"]
    assert run(["profile", *arguments, "--slots", "2", "--output-tokens", "4", "--seconds", "5"]) == 0
    assert "model on the torch engine, float32, int8 weights, CPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["echo", "--rate", "3", "--concurrency", "3"], 2, "give one of them"),
        (["echo", "--picture", "p.png"], 2, "pictures are SVG"),
        (["echo", "--picture", "gone/p.svg"], 2, "there is no folder gone"),
        (["echo", "--trace", "gone/t.json"], 2, "there is no folder gone"),
        (["echo", "--slots", "0"], 2, "--slots"),
        (["echo", "--slots", "8", "--max-step-tokens", "4"], 2, "at least HEADRACE_SLOTS, which is 8"),
        (["echo", "--prompt-tokens", "9000"], 1, "take a smaller --prompt-tokens"),
        (["nobody"], 2, "neither a model's directory nor built in"),
        (["./nowhere"], 1, "no config.json"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["profile", *arguments]) == status
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert list(tmp_path.glob("*.svg")) == []


def test_a_picture_that_cannot_be_written_after_all_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.svg").symlink_to(tmp_path / "gone" / "p.svg")
    assert run(["profile", "echo", "--seconds", "0.1", "--picture", "p.svg"]) == 2
    assert "--picture 'p.svg' can't be written" in capsys.readouterr().err
