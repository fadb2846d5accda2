"""Log files of parts: the last lines of one, and a fresh file for each start."""

from __future__ import annotations

from pathlib import Path

_TAIL_BYTES = 16_384


def last_lines(log: Path, count: int) -> tuple[str, ...]:
    """The last `count` lines with something in them; none if there is no such file."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return ()
    lines = [line.rstrip() for line in tail.decode(errors="replace").splitlines()]
    return tuple(line for line in lines if line)[-count:]


def rotate(log: Path, keep: int) -> None:
    """Make room for a new `log`: NAME becomes NAME.1, NAME.1 becomes NAME.2, and what is older than `keep` goes."""
    log.parent.mkdir(parents=True, exist_ok=True)
    for number in range(keep, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        newer = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
        if newer.exists():
            newer.replace(older)
