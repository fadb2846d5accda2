"""Which part of each weight a rank has: pure arithmetic over shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.projections import FusedShape, Projection
from gpu_consumers.errors import UnsupportedModelError

SUMMED: Final = frozenset({Projection.ATTENTION_OUT, Projection.DOWN})
"""Those that are cut by their inputs: each rank makes a part of a sum."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `rank` of `size` equal ones. The default is the whole."""

    rank: int = 0
    size: int = 1

    @property
    def is_whole(self) -> bool:
        return self.size == 1

    def of(self, count: int) -> int:
        """How many of `count` things a rank has; they must be divisible."""
        return count // self.size

    def span(self, count: int) -> slice:
        """Which of `count` things this rank has. They need not be divisible: the last ranks may have fewer."""
        most = -(-count // self.size)
        return slice(min(count, self.rank * most), min(count, (self.rank + 1) * most))

    def cut(
        self, kind: Projection, shape: FusedShape, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """This rank's part of a projection's weight [out, in] and bias [out], which are of the given shape.

        One that is cut by its inputs gives a part of a sum on each rank; its bias counts once, on rank 0.
        """
        if self.is_whole:
            return weight, bias
        if kind in SUMMED:
            return weight[:, self.span(shape.inputs)], bias if self.rank == 0 else None
        rows = torch.cat(
            [torch.arange(part.begin, part.begin + part.rows)[self.span(part.rows)] for part in shape.parts]
        )
        rows = rows.to(weight.device)
        return weight[rows], None if bias is None else bias[rows]


def check_divisible(size: int, **counts: int) -> None:
    """Raises UnsupportedModelError for what `size` ranks can't share evenly; counts by what they count."""
    for name, count in counts.items():
        if count % size:
            raise UnsupportedModelError(
                f"the model has {count} {name.replace('_', ' ')}, which {size} ranks can't share evenly: "
                f"choose a tensor parallelism that divides it"
            )
