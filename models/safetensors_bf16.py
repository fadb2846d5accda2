"""Writes weights to a safetensors file in bfloat16, one at a time.

The library's own writer wants all of them in memory, and numpy has no bfloat16. The format is a header
(eight bytes of length, JSON, spaces up to a multiple of eight) and the weights' bytes in its order:
https://github.com/huggingface/safetensors#format
"""

import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_BYTES_PER_WEIGHT = 2


def write_safetensors_bf16(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    weights: Iterable[tuple[str, npt.NDArray[np.float32]]],
) -> None:
    """Write `weights`, which must come with the names and shapes of `shapes` and in its order.

    Raises ValueError if they do not, and OSError as the disk gives it.
    """
    with path.open("wb") as file:
        _write_header(file, shapes)
        for (name, shape), (given_name, weight) in zip(shapes.items(), weights, strict=True):
            if (given_name, weight.shape) != (name, shape):
                raise ValueError(f"expected weight {name} {shape}, got {given_name} {weight.shape}")
            file.write(bfloat16_bits(weight).astype("<u2", copy=False).tobytes())


def _write_header(file: BinaryIO, shapes: Mapping[str, tuple[int, ...]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + prod(shape) * _BYTES_PER_WEIGHT
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (offset, end)}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    file.write(len(encoded).to_bytes(8, "little") + encoded)


def bfloat16_bits(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest, ties to even, as torch rounds. NaN is no weight."""
    bits = np.ascontiguousarray(weight, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)
