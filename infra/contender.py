"""One of the two models of a comparison, as a person writes it: `smollm2:float32`, `smollm2:int8`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.errors import ContenderInvalid

DTYPES: Final = ("bfloat16", "float16", "float32")
INT8: Final = "int8"
PLAIN: Final = "none"


@dataclass(frozen=True, slots=True)
class Contender:
    """name: a directory, a built-in model, or one that is registered. dtype: of weights and KV memory.
    quantization: of the weights of matrix products, as in HEADRACE_QUANTIZATION."""

    name: str
    dtype: str
    quantization: str = PLAIN

    @property
    def label(self) -> str:
        """For people: a directory by its last part."""
        kinds = (self.dtype,) if self.quantization == PLAIN else (self.dtype, self.quantization)
        return ":".join((self.name.rstrip("/").rpartition("/")[2], *kinds))


def contender(written: str, otherwise: Contender) -> Contender:
    """Of NAME, NAME:DTYPE, NAME:int8 or NAME:DTYPE:int8; a directory may have a colon in its name.

    otherwise: gives what is not written: a bare NAME gets dtype and quantization of it, NAME:int8 its dtype.
    NAME:DTYPE is not quantized. Raises ContenderInvalid for another suffix.
    """
    name, suffixes = written, list[str]()
    while ":" in name and not Path(name).expanduser().is_dir():
        name, _, suffix = name.rpartition(":")
        suffixes.insert(0, suffix)
    dtype = next((suffix for suffix in suffixes if suffix in DTYPES), otherwise.dtype)
    if not suffixes and name:
        return Contender(name, dtype, otherwise.quantization)
    if not name or suffixes not in ([dtype], [INT8], [dtype, INT8]):
        raise ContenderInvalid(written, (*DTYPES, INT8))
    return Contender(name, dtype, INT8 if INT8 in suffixes else PLAIN)
