"""The one folder that holds all state, and who holds it: one `headrace up` at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.errors import DataDirectoryBusy, DataDirectoryUnusable, DiskFull

# The log and ClickHouse start small; this is room to notice a filling disk before they stop on it.
NEEDED_FREE_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class Running:
    """What `headrace up` tells other commands of the same data directory: where its parts listen."""

    pid: int
    bootstrap_servers: str
    broker: str
    gateway_url: str
    clickhouse_url: str | None


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Paths below the data directory."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def clickhouse(self) -> Path:
        return self.path / "clickhouse"

    @property
    def credentials(self) -> Path:
        return self.path / "credentials.json"

    def log_of(self, part: str) -> Path:
        return self.logs / f"{part}.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make it and hold it for as long as the block runs; the lock goes with the process, however that ends.

        Raises DataDirectoryBusy, DataDirectoryUnusable, DiskFull.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirectoryUnusable(self.path, error.strerror or str(error)) from error
        try:
            self._take(lock)
            check_free_space(self.path)
            yield
            self._running_file.unlink(missing_ok=True)
        finally:
            os.close(lock)

    def announce(self, running: Running) -> None:
        """Tell other commands where the parts listen, until the directory is let go."""
        write_whole(self._running_file, json.dumps(asdict(running), indent=2) + "\n")

    def running(self) -> Running | None:
        """What the `headrace up` that holds the directory now has announced; None if none does."""
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._read_running()
        finally:
            os.close(lock)
        return None

    @property
    def _running_file(self) -> Path:
        return self.path / "running.json"

    def _read_running(self) -> Running | None:
        try:
            return Running(**json.loads(self._running_file.read_text()))
        except FileNotFoundError:  # it is still starting
            return None

    def _take(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            raise DataDirectoryBusy(self.path, holder) from None
        self._running_file.unlink(missing_ok=True)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def check_free_space(directory: Path, needed_bytes: int = NEEDED_FREE_BYTES) -> None:
    """Raises DiskFull."""
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if free < needed_bytes:
        raise DiskFull(directory, free, needed_bytes)


def write_whole(file: Path, content: str, mode: int = 0o644) -> None:
    """Readers see the old content or the new one, never a half; `mode` holds from the first byte on."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    fresh.replace(file)
