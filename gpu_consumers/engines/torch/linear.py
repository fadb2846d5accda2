"""A matrix product with fixed weights, packed once for the CPU where oneDNN can."""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

_PACKED_FOR_ROWS: Final = 128  # a hint to oneDNN: its layout for 128 rows is as fast as any from 1 to 256


class Linear:
    """y = x W^T + b. `packed` says that oneDNN holds the weights in a layout of its own.

    Packed is 1.3 to 4 times as fast as `F.linear` on a CPU, which packs anew at each call. The two ops are
    private to torch: where they are not there or refuse the dtype, `F.linear` does the work.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.packed: Final = can_pack(weight.dtype, weight.device.type)
        self._bias = bias
        self._weight = _pack(weight) if self.packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed:
            return _linear(x, self._weight, self._bias, "none", [], "")  # type: ignore[no-any-return]
        return F.linear(x, self._weight, self._bias)

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + x W^T + b, in one pass over the result where packed."""
        if self.packed:
            return _linear.binary(x, residual, self._weight, self._bias, "add")  # type: ignore[no-any-return]
        return residual + F.linear(x, self._weight, self._bias)


@cache
def can_pack(dtype: torch.dtype, device_type: str) -> bool:
    """Whether oneDNN takes packed weights of this dtype on this machine: found out by trying."""
    if device_type != "cpu" or not torch._C._has_mkldnn:
        return False
    try:
        weight = torch.eye(16, dtype=dtype)
        result = _linear(weight, _pack(weight), None, "none", [], "")
        return bool(torch.equal(_linear.binary(weight, result, _pack(weight), None, "add"), 2 * weight))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)  # type: ignore[no-any-return]


_linear = torch.ops.mkldnn._linear_pointwise
