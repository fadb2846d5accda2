import subprocess
import sys

import pytest

from models.children import child, last_line


def test_a_child_is_killed_when_the_work_around_it_fails() -> None:
    command = [sys.executable, "-c", "import sys, threading; threading.Event().wait()"]

    with (
        pytest.raises(KeyboardInterrupt),
        child(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
    ):
        raise KeyboardInterrupt

    assert process.returncode == -9


def test_a_child_that_ends_by_itself_keeps_its_status() -> None:
    with child([sys.executable, "-c", "exit(7)"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        process.wait()

    assert process.returncode == 7


@pytest.mark.parametrize(("text", "line"), [("a\nb: reason\n\n", "b: reason"), ("", "no output"), (" \n", "no output")])
def test_the_last_line_with_something_on_it_is_the_reason(text: str, line: str) -> None:
    assert last_line(text) == line
