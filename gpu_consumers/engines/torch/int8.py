"""Matrix products with weights in int8: half the memory of bf16 to read, and on a CPU twice the arithmetic."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.linear import Linear
from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.engines.torch.native.kernels import INT8_MAX_INPUTS, INT8_PANEL, INT8_QUAD
from gpu_consumers.engines.torch.projections import MakeProduct, Product

log = logging.getLogger("headrace.worker.int8")

QUANTIZATIONS: Final = ("none", "int8")

_PIECE_NUMBERS: Final = 4 << 20
"""Weights that are in fp32 at once: 16 MiB."""


_FEW_ROWS: Final = 64
"""From more on, dequantizing pays: it takes as long for a thousand rows as for one."""


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """values: [outputs, inputs] int8. scales: [outputs] float32, what one of `values` in that row stands for."""

    values: Tensor
    scales: Tensor

    def dequantized(self, rows: slice, dtype: torch.dtype) -> Tensor:
        return (self.values[rows] * self.scales[rows, None]).to(dtype)


def quantized(weight: Tensor) -> Int8Weight:
    """Symmetric, per output channel: the largest of a row becomes 127 or -127, and 0 stays 0.

    weight: [outputs, inputs].
    """
    values = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
    scales = torch.empty(len(weight), dtype=torch.float32, device=weight.device)
    for rows in _pieces(weight):
        wide = weight[rows].float()
        steps = scales[rows] = wide.abs().amax(dim=1) / 127
        values[rows] = (wide / steps.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round_()
    return Int8Weight(values, scales)


def _pieces(weight: Tensor) -> list[slice]:
    """Rows of it, a few at a time."""
    outputs, inputs = weight.shape
    step = max(1, _PIECE_NUMBERS // inputs)
    return [slice(begin, begin + step) for begin in range(0, outputs, step)]


def product_maker(quantization: str, kernels: Kernels | None) -> MakeProduct:
    """What makes a product of weight [outputs, inputs] and bias. quantization: one of QUANTIZATIONS.

    kernels: the compiled ones; None: torch's own operations.
    """
    if quantization == "none":
        return Linear
    native = kernels if kernels is not None and kernels.has_int8 else None
    if native is None:
        log.warning(
            "int8 weights save memory here but no time: that takes AVX512-VNNI, g++, and a dtype of bfloat16 or float32"
        )

    def make(weight: Tensor, bias: Tensor | None) -> Product:
        if native is None or weight.shape[1] > INT8_MAX_INPUTS:
            return WeightOnlyLinear(quantized(weight), bias)
        return Int8Linear(quantized(weight), bias, native)

    return make


class Int8Linear:
    """y = x W^T + b by the compiled kernel: x is quantized too, each row by itself, as int8.cpp says.

    A row's result is the same to the bit in whatever company it comes.
    """

    def __init__(self, weight: Int8Weight, bias: Tensor | None, kernels: Kernels) -> None:
        self._outputs = len(weight.scales)
        self._weights, self._scales = packed(weight)
        self._bias, self._kernels = bias, kernels

    def __call__(self, x: Tensor) -> Tensor:
        return self._kernels.int8_linear(x.contiguous(), self._weights, self._scales, self._bias, None, self._outputs)

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + x W^T + b, in one pass over the result."""
        x, residual = x.contiguous(), residual.contiguous()
        return self._kernels.int8_linear(x, self._weights, self._scales, self._bias, residual, self._outputs)


class WeightOnlyLinear:
    """y = x W^T + b by torch's operations, on any device: x stays as it is.

    Few rows of bf16 on a CPU go through an op that is private to torch; else the weights are dequantized in pieces.
    """

    def __init__(self, weight: Int8Weight, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self._ones = torch.ones_like(weight.scales, dtype=torch.bfloat16)
        self._pieces = _pieces(weight.values)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype == torch.bfloat16 and x.device.type == "cpu" and len(x) <= _FEW_ROWS:
            # Scaled afterwards: the op would take the scales in bf16 only.
            y = torch._weight_int8pack_mm(x.contiguous(), self._weight.values, self._ones) * self._weight.scales
            return (y if self._bias is None else y + self._bias).to(x.dtype)
        y = torch.cat([F.linear(x, self._weight.dequantized(piece, x.dtype)) for piece in self._pieces], dim=-1)
        return y if self._bias is None else y.add_(self._bias)

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + x W^T + b."""
        return self(x).add_(residual)


def packed(weight: Int8Weight) -> tuple[Tensor, Tensor]:
    """As int8.cpp reads them: weights [panels, quads, INT8_PANEL, INT8_QUAD] uint8, each plus 128, and scales
    [panels * INT8_PANEL]; filled up with zeros (128) behind the last output and input.
    """
    outputs, inputs = weight.values.shape
    padding = (0, -inputs % INT8_QUAD, 0, -outputs % INT8_PANEL)
    values = F.pad(weight.values, padding)
    panels = values.view(-1, INT8_PANEL, values.shape[1] // INT8_QUAD, INT8_QUAD).transpose(1, 2).contiguous()
    return panels.view(torch.uint8).bitwise_xor_(128), F.pad(weight.scales, (0, padding[3]))
