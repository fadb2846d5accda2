"""The compiled kernels as functions on tensors.

Each checks nothing that costs time: shapes and dtypes are those that model.py and attention.py give, and tests hold
every function against torch's own operations.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.native.build import BuildError, library

log = logging.getLogger("headrace.worker.native")

DTYPES: Final = {torch.bfloat16: "bfloat16", torch.float32: "float32"}
INT8_PANEL: Final = 32
INT8_QUAD: Final = 4
INT8_MAX_INPUTS: Final = 65536
"""How int8.cpp wants its weights: panels of outputs, inputs by fours, and not so many that a sum overflows."""

_POINTER, _COUNT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_SIGNATURES: Final = {
    "attend": [_POINTER, _COUNT, *[_POINTER] * 5, *[_COUNT] * 7, _REAL],
    "attend_chunks": [_POINTER, _COUNT, *[_POINTER] * 5, *[_COUNT] * 7, _REAL],
    "rotate_and_store": [*[_POINTER] * 6, *[_COUNT] * 5],
    "norm_heads": [*[_POINTER] * 2, *[_COUNT] * 4, _REAL],
    "rms_norm": [*[_POINTER] * 3, _COUNT, _COUNT, _REAL],
    "gated_silu": [*[_POINTER] * 2, _COUNT, _COUNT],
    "add_lora": [_POINTER, _COUNT, _POINTER, *[_COUNT] * 3, *[_POINTER, _COUNT] * 3],
}

AddLora = Callable[[Tensor, Tensor, int], None]
"""See `Kernels.adder`."""

_INT8_LINEAR: Final = [*[_POINTER] * 6, *[_COUNT] * 3]


class Kernels:
    """For tensors of one dtype on the CPU, all of them contiguous but for the rows of queries."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        """Raises OSError for a library that can't be loaded: it does not find torch's OpenMP runtime, say."""
        self.dtype: Final = dtype
        loaded = ctypes.CDLL(str(path))
        functions: dict[str, Any] = {}
        for name, arguments in _SIGNATURES.items():
            function = functions[name] = getattr(loaded, f"{name}_{DTYPES[dtype]}")
            function.argtypes, function.restype = arguments, None
        self._attend = functions["attend"]
        self._attend_chunks = functions["attend_chunks"]
        self._rotate_and_store = functions["rotate_and_store"]
        self._norm_heads = functions["norm_heads"]
        self._rms_norm = functions["rms_norm"]
        self._gated_silu = functions["gated_silu"]
        self._add_lora = functions["add_lora"]
        self._int8_linear: Any = getattr(loaded, f"int8_linear_{DTYPES[dtype]}", None)
        if self._int8_linear is not None:
            self._int8_linear.argtypes, self._int8_linear.restype = _INT8_LINEAR, None

    @property
    def has_int8(self) -> bool:
        """Whether `int8_linear` is there: int8.cpp is for processors with AVX512-VNNI."""
        return self._int8_linear is not None

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        blocks: Tensor,
        lengths: Tensor,
        *,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """One query for each sequence: [count, query heads, dim], scaled and rotated -> [count, query heads * dim].

        keys, values: [all blocks, key-value heads, block tokens, dim]. blocks: [count, columns] int32, those of each
        sequence in order. lengths: [count] int32, its tokens, the query's own included; at least 1.
        window: of the newest tokens only so many are attended to. softcap: scores become cap * tanh(score / cap).
        """
        count, query_heads, dim = queries.shape
        _, key_heads, block_tokens, _ = keys.shape
        out = queries.new_empty(count, query_heads * dim)
        self._attend(
            queries.data_ptr(), queries.stride(0), keys.data_ptr(), values.data_ptr(), blocks.data_ptr(),
            lengths.data_ptr(), out.data_ptr(), count, blocks.shape[1], query_heads, key_heads, dim, block_tokens,
            window or 0, softcap or 0.0,
        )  # fmt: skip
        return out

    def attend_chunks(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        blocks: Tensor,
        chunks: Tensor,
        out: Tensor,
        *,
        window: int | None = None,
        softcap: float | None = None,
    ) -> None:
        """Chunks of sequences, causal: [rows, query heads, dim] -> rows of out [all rows, query heads * dim].

        chunks: [count, 3] int64, of each its first row, its tokens, and the tokens before it in its sequence; keys and
        values of all of them are in memory. blocks: [count, columns] int32. The rest is as in `attend`.
        """
        _, query_heads, dim = queries.shape
        _, key_heads, block_tokens, _ = keys.shape
        self._attend_chunks(
            queries.data_ptr(), queries.stride(0), keys.data_ptr(), values.data_ptr(), blocks.data_ptr(),
            chunks.data_ptr(), out.data_ptr(), *blocks.shape, query_heads, key_heads, dim, block_tokens,
            window or 0, softcap or 0.0,
        )  # fmt: skip

    def rotate_and_store(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, places: Tensor, keys: Tensor, values: Tensor, query_heads: int
    ) -> None:
        """Rotate queries and keys of `qkv` [tokens, query heads + 2 * key-value heads, dim] in place, and write keys
        and values to their places [tokens] int64, counted in tokens of the memory. cos, sin: see rotary.Rotation.
        """
        tokens, _, dim = qkv.shape
        _, key_heads, block_tokens, _ = keys.shape
        self._rotate_and_store(
            qkv.data_ptr(), cos.data_ptr(), sin.data_ptr(), places.data_ptr(), keys.data_ptr(), values.data_ptr(),
            tokens, query_heads, key_heads, dim, block_tokens,
        )  # fmt: skip

    def norm_heads(self, qkv: Tensor, weight: Tensor, epsilon: float) -> None:
        """RMS norm of the first heads of `qkv` [tokens, heads, dim], each by itself, in place.

        weight: [normed heads, dim], float32.
        """
        normed, _ = weight.shape
        tokens, heads, dim = qkv.shape
        self._norm_heads(qkv.data_ptr(), weight.data_ptr(), tokens, heads, normed, dim, epsilon)

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """[rows, dim] -> the same. weight: [dim], float32."""
        out = torch.empty_like(x)
        self._rms_norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), *x.shape, epsilon)
        return out

    def gated_silu(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [rows, 2 * dim] -> [rows, dim]."""
        rows, both = gate_up.shape
        out = gate_up.new_empty(rows, both // 2)
        self._gated_silu(gate_up.data_ptr(), out.data_ptr(), rows, both // 2)
        return out

    def int8_linear(
        self, x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None, residual: Tensor | None, outputs: int
    ) -> Tensor:
        """x W^T + bias + residual: [rows, inputs] -> [rows, outputs].

        weights: [panels, quads, INT8_PANEL, INT8_QUAD] uint8, W plus 128. scales: [panels * INT8_PANEL] float32.
        bias: [outputs]; residual: [rows, outputs].
        """
        rows, inputs = x.shape
        out = x.new_empty(rows, outputs)
        self._int8_linear(
            x.data_ptr(), weights.data_ptr(), scales.data_ptr(), None if bias is None else bias.data_ptr(),
            None if residual is None else residual.data_ptr(), out.data_ptr(), rows, inputs, outputs,
        )  # fmt: skip
        return out

    def adder(self, tiles: Tensor, spans: Tensor, inner: Tensor) -> AddLora:
        """What adds LoRA to a projection: called with x, out and offset, out += x A B, each row with the adapter of its
        tile, in place.

        x: [rows, inputs]; out: [rows, outputs]. offset, and spans [count, 2] int64: see `LoraLayout`.
        tiles: [count, 4] int64: first row, rows (8 at most), address of the adapter's weights, rank. The weights lie as
        `LoraLayout.for_kernels` has them. inner: room for x A, [rows, columns of the widest A] in the dtype of x.
        """
        function = self._add_lora
        fixed = (tiles.data_ptr(), len(tiles), spans.data_ptr(), len(spans), inner.data_ptr(), inner.shape[1])
        held = (tiles, spans, inner)

        def add(x: Tensor, out: Tensor, offset: int, _held: object = held) -> None:
            function(x.data_ptr(), x.stride(0), out.data_ptr(), out.stride(0), x.shape[1], offset, *fixed)

        return add


@cache
def kernels_for(dtype: torch.dtype, device_type: str, folder: Path) -> Kernels | None:
    """The kernels, or None where torch's own operations have to do: another device or dtype, or no compiler.

    folder: where the library is kept.
    """
    if device_type != "cpu" or dtype not in DTYPES:
        return None
    try:
        return Kernels(library(folder), dtype)
    except (BuildError, OSError) as error:
        log.warning("no compiled kernels, torch's operations do the work and decodes are slower: %s", error)
        return None
