"""One of the two models of a comparison, as a person writes it: `smollm2:float32`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.errors import ContenderInvalid

DTYPES: Final = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Contender:
    """name: a directory, a built-in model, or one that is registered. dtype: of weights and KV memory."""

    name: str
    dtype: str

    @property
    def label(self) -> str:
        """For people: a directory by its last part."""
        return f"{self.name.rstrip('/').rpartition('/')[2]}:{self.dtype}"


def contender(written: str, default_dtype: str) -> Contender:
    """Of NAME or NAME:DTYPE; a directory may have a colon in its name. Raises ContenderInvalid for another suffix."""
    name, colon, suffix = written.rpartition(":")
    if not colon or Path(written).expanduser().is_dir():
        return Contender(written, default_dtype)
    if not name or suffix not in DTYPES:
        raise ContenderInvalid(written, suffix, DTYPES)
    return Contender(name, suffix)
