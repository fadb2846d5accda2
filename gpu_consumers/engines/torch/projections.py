"""The matrix products of a layer: which there are, and what each is fused of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from gpu_consumers.engines.torch.linear import Linear


class Product(Protocol):
    """A matrix product with fixed weights, whatever they lie in: y = x W^T + b."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + x W^T + b."""
        ...


class Projection(StrEnum):
    """GATE_UP is the up projection alone where the MLP has no gate."""

    QKV = "qkv"
    ATTENTION_OUT = "attention_out"
    GATE_UP = "gate_up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a fused weight [out, in] that mean one thing.

    name: query, key, value, out, gate, up or down.
    module: where the checkpoint has them, as a path within a layer, such as "self_attn.q_proj". They are its rows
        from `module_begin` on: a module of a checkpoint may be fused itself.
    begin, rows: where they lie in the fused weight.
    """

    name: str
    module: str
    module_begin: int
    begin: int
    rows: int


@dataclass(frozen=True, slots=True)
class FusedShape:
    """A fused weight [out, in] of one projection: its parts in order, which fill all of its rows.

    row_order: the rows of the parts in the order in which the weight has them, where it is another (see
        `rotary.RotaryLayout`); they never leave their head.
    """

    inputs: int
    parts: tuple[Part, ...]
    row_order: tuple[int, ...] | None = None

    @property
    def outputs(self) -> int:
        return sum(part.rows for part in self.parts)

    def of_module(self, module: str) -> Iterator[Part]:
        """The parts that a module of the checkpoint holds."""
        return (part for part in self.parts if part.module == module)


def fused_shape(
    inputs: int, rows: Sequence[tuple[str, int]], modules: Sequence[str], row_order: tuple[int, ...] | None = None
) -> FusedShape:
    """rows: name and size of each part. modules: one for each part, or one that holds them all."""
    begins = list(accumulate((size for _, size in rows), initial=0))
    own = len(modules) == len(rows)
    return FusedShape(
        inputs,
        tuple(
            Part(name, modules[i] if own else modules[0], 0 if own else begins[i], begins[i], size)
            for i, (name, size) in enumerate(rows)
        ),
        row_order,
    )


MakeProduct = Callable[[Tensor, Tensor | None], Product]
"""Of a weight [out, in] and a bias [out], both where they will be used."""


def projection(
    sources: Sequence[tuple[Tensor, Tensor | None]], device: torch.device, make: MakeProduct = Linear
) -> Product:
    """Projections of one input as one. Every matrix product of a model is made here.

    sources: weight [out, in] and bias [out] of each, in order; all have a bias or none.
    """
    weight, bias = fused(sources)
    return make(weight.to(device), None if bias is None else bias.to(device))


def fused(
    sources: Sequence[tuple[Tensor, Tensor | None]], row_order: Sequence[int] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of one input as one weight [out, in] and one bias [out]. row_order: see `FusedShape`."""
    weight = torch.cat([weight for weight, _ in sources])
    biases = [bias for _, bias in sources if bias is not None]
    bias = torch.cat(biases) if biases else None
    if row_order is None:
        return weight, bias
    rows = torch.tensor(row_order)
    return weight[rows], None if bias is None else bias[rows]
