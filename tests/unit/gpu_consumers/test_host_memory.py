from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gpu_consumers.host_memory import available_bytes

GIB = 1 << 30


@pytest.fixture(autouse=True)
def no_limit_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def write(root: Path, **files: str) -> Path:
    """File names with "__" for "/"."""
    for name, text in files.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


MEMINFO = "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB"


def test_what_the_machine_has_available_counts_where_nothing_limits(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/")
    write(root / "sys/fs/cgroup", **{"memory.max": "max", "memory.current": "5"})
    assert available_bytes(root) == 16 * GIB


def test_a_cgroup_leaves_its_limit_less_what_is_in_use_and_can_not_be_given_up(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/pod/worker")
    limits = {"memory.max": str(8 * GIB), "memory.current": str(6 * GIB), "memory.stat": f"anon 7\ninactive_file {GIB}"}
    write(root / "sys/fs/cgroup/pod/worker", **limits)
    assert available_bytes(root) == 3 * GIB


def test_a_limit_above_it_counts_too(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/pod/worker")
    write(root / "sys/fs/cgroup/pod/worker", **{"memory.max": str(8 * GIB), "memory.current": "0"})
    write(root / "sys/fs/cgroup/pod", **{"memory.max": str(4 * GIB), "memory.current": str(3 * GIB)})
    assert available_bytes(root) == GIB


def test_in_a_container_that_sees_the_path_of_its_host_the_topmost_group_counts(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/kubepods/not-mounted-here")
    write(root / "sys/fs/cgroup", **{"memory.max": str(2 * GIB), "memory.current": "0"})
    assert available_bytes(root) == 2 * GIB


def test_the_first_version_of_cgroups_has_other_names_and_writes_no_limit_as_a_number(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="9:cpu,cpuacct:/a\n4:memory:/a/b")
    of_group = root / "sys/fs/cgroup/memory/a/b"
    write(of_group, **{"memory.limit_in_bytes": str(4 * GIB), "memory.usage_in_bytes": str(GIB)})
    write(of_group.parent, **{"memory.limit_in_bytes": str((1 << 63) - 4096), "memory.usage_in_bytes": str(GIB)})
    assert available_bytes(root) == 3 * GIB


def test_a_limit_of_the_address_space_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4 * GIB, 4 * GIB))
    pages = GIB // resource.getpagesize()
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__statm=f"{pages} 5 5 5")
    assert available_bytes(root) == 3 * GIB


def test_what_is_overdrawn_is_none(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/")
    write(root / "sys/fs/cgroup", **{"memory.max": "5", "memory.current": "9"})
    assert available_bytes(root) == 0


def test_where_nothing_can_be_read_it_is_half_of_the_machine(tmp_path: Path) -> None:
    assert 0 < available_bytes(tmp_path) < 1 << 50


def test_here_there_is_some() -> None:
    assert available_bytes() > 0
