"""Runs a program such that it never outlives the process that started it, not even one that is killed (SIGKILL).

    python -I -S guard.py PARENT_PID COMMAND [ARGUMENT...]

It is run as a file, by path, and imports next to nothing, so that it costs 15 ms. On Linux it asks the kernel for a
SIGKILL at the parent's death and becomes the program; elsewhere it stays in between and looks twice a second.

On Linux the kernel watches the *thread* that started this: start from a thread that lives as long as the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_WATCH_SECONDS = 0.5
_COMMAND_NOT_FOUND = 127


def guarded(arguments: Sequence[str], parent_pid: int) -> tuple[str, ...]:
    """The command line that runs `arguments` as a process that dies with `parent_pid` (the caller's own)."""
    return (sys.executable, "-I", "-S", str(Path(__file__).absolute()), str(parent_pid), *arguments)


def become(parent_pid: int, arguments: Sequence[str]) -> int:
    """Linux: ask for the signal, then become the program. Returns only if that fails."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the kernel was asked
        return 1
    try:
        os.execvp(arguments[0], tuple(arguments))
    except OSError as error:
        print(f"{arguments[0]}: {error.strerror}", file=sys.stderr)
        return _COMMAND_NOT_FOUND


def watch(parent_pid: int, arguments: Sequence[str]) -> int:
    """Elsewhere: run the program, kill it when the parent is gone. Returns its exit status.

    Signals to stop go to the whole process group, so the program has them already and this only waits for it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        program = subprocess.Popen(arguments, close_fds=False)
    except OSError as error:
        print(f"{arguments[0]}: {error.strerror}", file=sys.stderr)
        return _COMMAND_NOT_FOUND
    while True:
        try:
            return program.wait(_WATCH_SECONDS)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent_pid:
                program.kill()


def main(arguments: Sequence[str]) -> int:
    parent_pid, command = int(arguments[0]), arguments[1:]
    return become(parent_pid, command) if sys.platform == "linux" else watch(parent_pid, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
