"""How much memory this process may still take, on the machine and within what its container or shell allows."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_NO_LIMIT: Final = 1 << 60
"""cgroup v1 writes a number near 2**63 where there is no limit."""


def available_bytes(root: Path = Path("/")) -> int:
    """The least of: what the machine has available, what is left below each limit of this process's cgroups (v1 and
    v2), and what is left of its address space (`ulimit -v`). File pages that the kernel would give up count as left.

    Where none of it can be read, as on macOS, half of the machine's memory. root: where /proc and /sys are.
    """
    found = [*_machine(root), *_cgroups(root), *_address_space(root)]
    if not found:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return max(0, min(found))


def _machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * _KIB


def _cgroups(root: Path) -> Iterator[int]:
    """Each group that holds this process, up to the topmost: a limit anywhere above counts, too."""
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            yield from _left(mounted, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(mounted / "memory", path, *files)


def _left(mounted: Path, path: str, limit_file: str, use_file: str, reclaimable: str) -> Iterator[int]:
    """In a container the path may be that of the host, where only the topmost group is to be seen."""
    group = mounted / path.strip("/")
    while group.is_relative_to(mounted):
        limit, use = (_number(group / name) for name in (limit_file, use_file))
        if limit is not None and use is not None and limit < _NO_LIMIT:
            statistics = dict(line.split() for line in _lines(group / "memory.stat"))
            yield limit - use + int(statistics.get(reclaimable, 0))
        group = group.parent


def _address_space(root: Path) -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes = _lines(root / "proc/self/statm")
    if limit != resource.RLIM_INFINITY and sizes:
        yield limit - int(sizes[0].split()[0]) * resource.getpagesize()


def _number(file: Path) -> int | None:
    """None where there is no file, or the word "max" in it."""
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
