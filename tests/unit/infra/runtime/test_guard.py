from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from infra.runtime import guard
from infra.runtime.guard import guarded
from tests.timing import within

PRINT = (sys.executable, "-c", "import os, sys; print(os.getpid()); sys.exit(3)")


def test_the_guard_becomes_the_program_and_gives_its_status() -> None:
    with subprocess.Popen(guarded(PRINT, os.getpid()), stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=within(20))

    assert process.returncode == 3
    assert int(output) == process.pid


def test_a_parent_that_is_gone_already_starts_nothing() -> None:
    done = subprocess.run(guarded(PRINT, parent_pid=1), stdout=subprocess.PIPE, check=False)

    assert done.returncode == 1
    assert done.stdout == b""


def test_a_program_that_is_not_there_is_named() -> None:
    done = subprocess.run(guarded(("/no/where",), os.getpid()), stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == 127
    assert "/no/where" in done.stderr


def test_where_the_kernel_does_not_help_the_guard_watches_and_gives_the_status() -> None:
    assert watching(os.getpid(), "import sys; sys.exit(3)").wait(within(20)) == 3


def test_where_the_kernel_does_not_help_the_guard_ends_the_program_of_a_parent_that_is_gone(tmp_path: Path) -> None:
    process = watching(parent_pid=1, script="import signal; signal.pause()")

    assert process.wait(within(20)) == -9 % 256


def watching(parent_pid: int, script: str) -> subprocess.Popen[bytes]:
    """The guard as it is on systems without a signal at the parent's death."""
    call = f"import sys; sys.path.insert(0, {str(Path(guard.__file__).parent)!r}); import guard; "
    arguments = (sys.executable, "-c", script)
    return subprocess.Popen([sys.executable, "-c", f"{call}sys.exit(guard.watch({parent_pid}, {arguments!r}) % 256)"])
