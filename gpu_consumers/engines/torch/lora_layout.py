"""How the weights of a LoRA adapter lie in memory: all of them in one row, in the order in which a step reads them.

LoRA (Hu et al., 2021) adds x A B to a projection of x, with A [in, rank] and B [rank, out]. Ours are fused, and each
module of the checkpoint that is part of one has an A and a B of its own; so a projection has

    A [in, modules * rank], the A of its modules side by side, then for each module B [rank, the module's outputs].

Ranks are filled up with zeros to a multiple of BLOCK_COLUMNS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.projections import FusedShape, Projection

BLOCK_COLUMNS: Final = 16
"""Floats that the widest registers of a CPU hold: what the compiled kernel takes at once."""


def padded_rank(rank: int) -> int:
    return -(-rank // BLOCK_COLUMNS) * BLOCK_COLUMNS


@dataclass(frozen=True, slots=True)
class Span:
    """The outputs of a fused projection that are those of one module of the checkpoint, by its path in a layer.

    order: the module's outputs in the order in which the projection has them, where it is another.
    """

    module: str
    begin: int
    outputs: int
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LoraShape:
    """One projection. offset: where it begins in a layer's weights, in numbers for each unit of rank."""

    inputs: int
    spans: tuple[Span, ...]
    offset: int

    @property
    def size(self) -> int:
        """Numbers for each unit of rank."""
        return self.inputs * len(self.spans) + sum(span.outputs for span in self.spans)


class LoraLayout:
    """Of all adapters of one model."""

    def __init__(self, shapes: Mapping[Projection, FusedShape], layers: int) -> None:
        self.layers: Final = layers
        self.shapes: Final[dict[Projection, LoraShape]] = {}
        offset = 0
        for kind, shape in shapes.items():
            self.shapes[kind] = LoraShape(shape.inputs, _spans(shape), offset)
            offset += self.shapes[kind].size
        self.layer_size: Final = offset  # numbers for each unit of rank
        self.span_tables: Final = {
            kind: torch.tensor([(span.begin, span.outputs) for span in shape.spans])
            for kind, shape in self.shapes.items()
        }
        """The same spans for the compiled kernel, [spans, 2]: where each begins, and its outputs."""

    @property
    def most_columns(self) -> int:
        """Columns of the widest A, for each unit of rank."""
        return max(len(shape.spans) for shape in self.shapes.values())

    def numbers(self, rank: int) -> int:
        """Of a whole adapter."""
        return self.layers * self.layer_size * rank

    def offset(self, layer: int, kind: Projection) -> int:
        """Where a projection's weights begin, in numbers for each unit of rank."""
        return layer * self.layer_size + self.shapes[kind].offset

    def for_kernels(self, weights: Tensor, rank: int) -> Tensor:
        """The same weights as the compiled kernels read them: each matrix in blocks of 16 columns, one behind the
        other, and in bf16 two rows of a block together, number by number."""
        blocked = torch.empty_like(weights)
        for layer in range(self.layers):
            for kind, shape in self.shapes.items():
                _block(self.a(weights, rank, layer, kind), self.a(blocked, rank, layer, kind))
                for number in range(len(shape.spans)):
                    _block(self.b(weights, rank, layer, kind, number), self.b(blocked, rank, layer, kind, number))
        return blocked

    @property
    def has_kernels(self) -> bool:
        """Whether there are blocks and pairs without a rest, as there are in any model of the usual sizes."""
        return all(
            shape.inputs % 2 == 0 and all(span.outputs % BLOCK_COLUMNS == 0 for span in shape.spans)
            for shape in self.shapes.values()
        )

    def a(self, weights: Tensor, rank: int, layer: int, kind: Projection) -> Tensor:
        """[in, modules * rank] of an adapter's weights."""
        shape = self.shapes[kind]
        columns = len(shape.spans) * rank
        return weights.narrow(0, self.offset(layer, kind) * rank, shape.inputs * columns).view(shape.inputs, columns)

    def b(self, weights: Tensor, rank: int, layer: int, kind: Projection, number: int) -> Tensor:
        """[rank, outputs] of the module that is span `number` of the projection."""
        shape = self.shapes[kind]
        before = shape.inputs * len(shape.spans) + sum(span.outputs for span in shape.spans[:number])
        outputs = shape.spans[number].outputs
        return weights.narrow(0, (self.offset(layer, kind) + before) * rank, outputs * rank).view(rank, outputs)


def _block(matrix: Tensor, to: Tensor) -> None:
    rows, columns = matrix.shape
    together = 2 if matrix.dtype == torch.bfloat16 else 1
    blocks = matrix.view(rows // together, together, columns // BLOCK_COLUMNS, BLOCK_COLUMNS).permute(2, 0, 3, 1)
    to.view(blocks.shape).copy_(blocks)


def _spans(shape: FusedShape) -> tuple[Span, ...]:
    """Parts of one module follow each other, in the order that they have there."""
    spans: dict[str, Span] = {}
    for part in shape.parts:
        known = spans.get(part.module, Span(part.module, part.begin, 0))
        spans[part.module] = Span(part.module, known.begin, known.outputs + part.rows)
    return tuple(replace(span, order=_order(shape, span)) for span in spans.values())


def _order(shape: FusedShape, span: Span) -> tuple[int, ...] | None:
    if shape.row_order is None:
        return None
    return tuple(row - span.begin for row in shape.row_order[span.begin : span.begin + span.outputs])
