"""Compiles the *.cpp here for this very processor, once: the library in the cache is named after all it depends on."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

SOURCES: Final = tuple(sorted(Path(__file__).parent.glob("*.cpp")))
HEADERS: Final = tuple(sorted(Path(__file__).parent.glob("*.h")))
COMPILERS: Final = ("g++", "c++")  # GCC's OpenMP is the one that torch brings along
_FLAGS: Final = (
    "-std=gnu++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-fPIC", "-Wall", "-Werror",
    "-Wno-psabi",  # how wide vectors are handed over: all who call each other here are compiled together
    # What lets sums be vectorized. Not -ffast-math: NaN must go through, and it would change the whole process's
    # treatment of tiny numbers.
    "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math",
)  # fmt: skip
_TIMEOUT_SECONDS: Final = 120.0


class BuildError(Exception):
    """There is no compiler, or it refused; the message says which and why."""


def library(folder: Path, compilers: tuple[str, ...] = COMPILERS) -> Path:
    """The library for this machine, made if `folder` has none yet. Raises BuildError."""
    path = folder / f"headrace-kernels-{_name()}.so"
    if not path.exists():
        compiler = next(filter(None, map(shutil.which, compilers)), None)
        if compiler is None:
            raise BuildError(f"none of {', '.join(compilers)} is installed")
        _compile(compiler, path)
    return path


def _name() -> str:
    """A library for another source, other flags or another processor has another name."""
    processor = Path("/proc/cpuinfo")
    flags = next((line for line in processor.read_text().splitlines() if line.startswith(("flags", "Features"))), "") \
        if processor.exists() else platform.processor()  # fmt: skip
    sources = [source.read_text("utf-8") for source in (*SOURCES, *HEADERS)]
    parts = (*sources, *_FLAGS, platform.machine(), platform.libc_ver()[1], flags)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, path: Path) -> None:
    """Into a file of its own that takes the name at the end, so that two who build at once don't meet."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            linked = Path(folder) / "kernels.so"
            compiled = [str(Path(folder) / f"{source.stem}.o") for source in SOURCES]
            for source, to in zip(SOURCES, compiled, strict=True):
                _run(compiler, *_FLAGS, "-c", "-o", to, str(source))
            # Without -fopenmp: the names of its runtime are left open, and found in the one that torch has loaded.
            _run(compiler, "-shared", "-o", str(linked), *compiled)
            linked.rename(path)
    except OSError as error:
        raise BuildError(f"{path.parent} can't be written to: {error}") from error


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} did not end within {_TIMEOUT_SECONDS:.0f} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or "no message").splitlines()
        raise BuildError(f"{command[0]} refused: {lines[0][:300]}")
