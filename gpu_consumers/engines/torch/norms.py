"""Normalisation of rows, and of the heads of queries and keys; the best way for the machine is chosen once."""

from __future__ import annotations

from collections.abc import Callable

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
        wide = weight.float()
        return lambda rows: kernels.rms_norm(rows, wide, epsilon)

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


HeadNorm = Callable[[Tensor], None]
"""Of heads [tokens, heads, head_dim] of queries, keys and values, in place: each query and key by itself."""


def head_norm(weight: Tensor, epsilon: float, kernels: Kernels | None = None) -> HeadNorm:
    """RMS norm of each query and key head. weight: [query heads + key heads, head_dim], in the dtype of the heads
    or in fp32."""
    if kernels is not None:
        wide = weight.float()
        return lambda qkv: kernels.norm_heads(qkv, wide, epsilon)

    def normed(qkv: Tensor) -> None:
        heads = qkv[:, : weight.shape[0]]
        heads.copy_(F.rms_norm(heads.to(weight.dtype), heads.shape[-1:], None, epsilon).mul_(weight))

    return normed
