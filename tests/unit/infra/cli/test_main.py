from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from infra.cli import COMMANDS, cli, run
from infra.errors import SettingInvalid
from infra.runtime.data_directory import DataDirectory


@pytest.fixture(autouse=True)
def _own_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """`headrace version` raises what is in the list."""
    errors: list[Exception] = []

    @click.command()
    def fail() -> None:
        raise errors[0]

    monkeypatch.setattr(type(cli), "get_command", lambda *_: fail)
    return errors


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_in_the_table_is_there_and_says_what_it_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    assert "Usage: headrace" in capsys.readouterr().out


def test_help_lists_every_command_and_imports_none() -> None:
    program = (
        "import sys; from infra.cli import run; run(['--help']);"
        "print({'confluent_kafka', 'rich', 'torch', 'faust', 'infra.settings'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert done.stdout.splitlines()[-1] == "set()"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fly"]) == 2
    assert "No such command 'fly'" in capsys.readouterr().err


def test_our_own_errors_are_one_sentence_without_a_traceback(
    failing: list[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(SettingInvalid("HEADRACE_SLOTS", "0", "it must be more"))

    assert run(["version"]) == 2
    assert capsys.readouterr().err == "Error: HEADRACE_SLOTS='0' is not usable: it must be more.\n"


def test_an_unexpected_error_is_one_sentence_and_its_traceback_is_in_a_log(
    failing: list[Exception], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failing.append(ZeroDivisionError("division by zero"))
    with DataDirectory(tmp_path / "data").held():
        assert run(["version"]) == 1

    log = tmp_path / "data" / "logs" / "headrace.log"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in said
    assert str(log) in said
    assert "Traceback" in log.read_text()


def test_without_a_data_directory_the_traceback_is_shown_and_no_folder_is_made(
    failing: list[Exception], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failing.append(ZeroDivisionError("division by zero"))

    assert run(["version"]) == 1
    assert "Traceback" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_an_interrupted_command_ends_with_130(failing: list[Exception]) -> None:
    failing.append(click.Abort())

    assert run(["version"]) == 130


def test_a_command_that_needs_a_running_headrace_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tenants", "list"]) == 1
    assert "headrace up" in capsys.readouterr().err


def test_a_misspelt_setting_is_named_in_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_SLOT", "3")

    assert run(["settings"]) == 0
    assert "did you mean HEADRACE_SLOTS?" in capsys.readouterr().err


def test_settings_shows_no_secret(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", "hr_secret")

    assert run(["settings"]) == 0
    assert "hr_secret" not in capsys.readouterr().out
