"""Directories that are made once and then shared by processes: whole and known, or not there.

A maker works in a directory beside the final one, under a file lock, and renames it at the end. So a second
process waits for the first instead of doing the work again, and a kill or a full disk at any moment leaves
either nothing or a leftover that the next maker removes. The lock is the operating system's: it goes with
the process that holds it.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from models.errors import CacheUnusableError, DiskFullError

_MANIFEST: Final = "manifest.json"


def is_complete(directory: Path, identity: Mapping[str, str]) -> bool:
    """True if `directory` was made by `make_once` for `identity` and its files still have their sizes."""
    try:
        manifest = json.loads((directory / _MANIFEST).read_bytes())
        return bool(
            manifest["identity"] == dict(identity)
            and all((directory / name).stat().st_size == size for name, size in manifest["files"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def make_once(
    directory: Path,
    identity: Mapping[str, str],
    *,
    needed_bytes: int,
    make: Callable[[Path, Path], None],
    waiting: Callable[[], None],
) -> Path:
    """`directory`, made by `make(destination, scratch)` unless it is there already.

    `destination` becomes `directory`, `scratch` is thrown away; both are empty, on the same file system.
    `identity` says what the content is made from; another identity, or a damaged directory, is made again.
    `waiting` is called, once, if another process is making it. `needed_bytes` is what making takes at its
    fullest. Raises :class:`DiskFullError` or :class:`CacheUnusableError`, and what `make` raises.
    """
    if is_complete(directory, identity):
        return directory
    with _explained(directory.parent, needed_bytes):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _locked(directory.with_name(f".{directory.name}.lock"), waiting):
            if not is_complete(directory, identity):
                _remove_leftovers(directory)
                _check_space(directory.parent, needed_bytes)
                _make_and_publish(directory, identity, make)
    return directory


def _make_and_publish(directory: Path, identity: Mapping[str, str], make: Callable[[Path, Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=_leftover_prefix(directory)) as temporary:
        destination, scratch = Path(temporary, "made"), Path(temporary, "scratch")
        destination.mkdir()
        scratch.mkdir()
        make(destination, scratch)
        files = {path.name: path.stat().st_size for path in sorted(destination.iterdir())}
        manifest = {"identity": dict(identity), "files": files}
        (destination / _MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        for path in destination.iterdir():  # or a power cut may leave names and sizes without the bytes
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if directory.exists():
            shutil.rmtree(directory)
        destination.rename(directory)


@contextlib.contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(directory: Path) -> None:
    """Remove what killed makers left. Only under the lock: there is no living maker then."""
    for leftover in directory.parent.glob(f"{_leftover_prefix(directory)}*"):
        shutil.rmtree(leftover)


def _leftover_prefix(directory: Path) -> str:
    return f".{directory.name}.partial-"


def _check_space(cache_dir: Path, needed_bytes: int) -> None:
    if shutil.disk_usage(cache_dir).free < needed_bytes:
        raise OSError(errno.ENOSPC, "too little space to begin")


@contextlib.contextmanager
def _explained(cache_dir: Path, needed_bytes: int) -> Iterator[None]:
    """Turn what the file system refuses into a sentence with a way out."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"the disk under {str(cache_dir)!r} is full: making the model takes about "
                f"{needed_bytes / 1e6:.0f} MB there; free some space, or set HEADRACE_CACHE_DIR to a directory "
                "on another disk"
            ) from error
        raise CacheUnusableError(
            f"the model cache {str(cache_dir)!r} cannot be used: {error}; "
            "set HEADRACE_CACHE_DIR to a directory that can be written"
        ) from error
