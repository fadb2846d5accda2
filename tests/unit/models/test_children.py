import sys
from pathlib import Path

import pytest

from models.children import child, last_line


def test_a_child_is_killed_when_the_work_around_it_fails() -> None:
    command = [sys.executable, "-c", "import threading; threading.Event().wait()"]

    with pytest.raises(KeyboardInterrupt), child(command) as process:
        raise KeyboardInterrupt

    assert process.returncode == -9


def test_a_child_that_ends_by_itself_keeps_its_status_and_says_all_in_one_stream(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), flush=True); sys.stderr.buffer.write(b'\\xff!'); exit(7)"

    with child([sys.executable, "-c", code], cwd=tmp_path) as process:
        output, _ = process.communicate()

    assert process.returncode == 7
    assert output == f"{tmp_path}\n\ufffd!"


@pytest.mark.parametrize(("text", "line"), [("a\nb: reason\n\n", "b: reason"), ("", "no output"), (" \n", "no output")])
def test_the_last_line_with_something_on_it_is_the_reason(text: str, line: str) -> None:
    assert last_line(text) == line
