"""Child processes that do not outlive the work that they are part of."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

EXIT_DISK_FULL: Final = 3
"""How a child of ours says that the disk is full: an exit status carries no errno."""


@contextlib.contextmanager
def child(command: Sequence[str], *, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A running `command`; killed, and waited for, if the block is left (by Ctrl-C, say) while it runs.

    `stdout` of the process carries its errors too, by a pipe: a file could be on the disk that is full.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        text=True,
        errors="replace",
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def last_line(text: str) -> str:
    """The last line with something on it: where a program puts what stopped it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
