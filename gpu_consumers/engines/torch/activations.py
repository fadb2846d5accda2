"""What an MLP does between its two matrix products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.errors import UnsupportedModelError

Activation = Callable[[Tensor], Tensor]
"""Gated: [rows, gate and up: 2 * dim] -> [rows, dim]. Plain: [rows, dim] -> the same."""

_gelu_tanh: Final = partial(F.gelu, approximate="tanh")

_FUNCTIONS: Final[dict[str, Activation]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu,
}
"""By the names that transformers has for them."""


def named(name: str) -> Activation:
    """Raises UnsupportedModelError for a name that is not known."""
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"the model's activation is {name!r}; supported are {', '.join(_FUNCTIONS)}"
        ) from None


def between_products(function: Activation, *, gated: bool, kernels: Kernels | None = None) -> Activation:
    """What stands between the two products of an MLP whose activation is `function`."""
    if not gated:
        return function
    if kernels is not None and function is F.silu:
        return kernels.gated_silu

    def gate(gate_up: Tensor) -> Tensor:
        opening, up = gate_up.chunk(2, dim=-1)
        return function(opening).mul_(up)

    return gate
