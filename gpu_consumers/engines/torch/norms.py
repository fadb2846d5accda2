"""Normalisation of rows, and of the heads of queries and keys; the best way for the machine is chosen once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.native import Kernels

Norm = Callable[[Tensor], Tensor]
"""[rows, dim] -> the same, in the same dtype."""


def rms_norm(weight: Tensor, epsilon: float, kernels: Kernels | None = None) -> Norm:
    """x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich, 2019), summed in fp32.

    weight: [dim] in the dtype of the rows, or in fp32 where rounding it would cost precision (see `offset_weight`).
    """
    dim = weight.shape
    if kernels is not None:
        return lambda rows: kernels.rms_norm(rows, weight, epsilon)

    def normed(rows: Tensor) -> Tensor:
        if rows.dtype == weight.dtype:
            return F.rms_norm(rows, dim, weight, epsilon)
        return F.rms_norm(rows.float(), dim, weight, epsilon).to(rows.dtype)

    return normed


def layer_norm(weight: Tensor, bias: Tensor, epsilon: float) -> Norm:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias."""
    dim = weight.shape
    return lambda rows: F.layer_norm(rows, dim, weight, bias, epsilon)


def offset_weight(weight: Tensor) -> Tensor:
    """1 + weight in fp32: Gemma's norms store their distance from one, which bf16 would round to 1/128."""
    return weight.float() + 1.0


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMS norm of each query and key head by itself, before they are rotated.

    weight: [query heads + key heads, head_dim], in the dtype of the heads or in fp32.
    """

    weight: Tensor
    epsilon: float

    def apply(self, heads: Tensor) -> None:
        """Normalise `heads` [tokens, query heads + key heads, head_dim] in place."""
        normed = F.rms_norm(heads.to(self.weight.dtype), heads.shape[-1:], None, self.epsilon)
        heads.copy_(normed.mul_(self.weight))
