from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import DataDirectoryBusy, DataDirectoryUnusable
from infra.runtime.data_directory import DataDirectory, Running, write_whole

RUNNING = Running(1, "127.0.0.1:9092", "embedded", "http://127.0.0.1:8080", None)


def test_a_second_holder_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")

    with (
        directory.held(),
        pytest.raises(DataDirectoryBusy, match=rf"process {os.getpid()}\).*HEADRACE_DATA_DIR"),
        DataDirectory(tmp_path / "data").held(),
    ):
        raise AssertionError("held twice")


def test_the_directory_is_free_again_when_its_holder_was_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from infra.runtime.data_directory import DataDirectory
with DataDirectory(Path({str(tmp_path)!r})).held():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)

    with DataDirectory(tmp_path).held():
        assert (tmp_path / "logs").is_dir()


def test_others_hear_where_the_parts_listen_only_while_they_run(tmp_path: Path) -> None:
    directory, other = DataDirectory(tmp_path), DataDirectory(tmp_path)
    assert other.running() is None

    with directory.held():
        assert other.running() is None
        directory.announce(RUNNING)
        assert other.running() == RUNNING

    assert other.running() is None


def test_what_a_killed_holder_announced_is_not_believed(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with directory.held():
        pass
    directory.announce(RUNNING)

    assert directory.running() is None


def test_a_directory_that_cannot_be_made_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(DataDirectoryUnusable, match="Not a directory"),
        DataDirectory(tmp_path / "file" / "data").held(),
    ):
        raise AssertionError("held")


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    write_whole(file, "old", 0o644)
    write_whole(file, "new", 0o600)

    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
