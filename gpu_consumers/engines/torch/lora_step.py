"""LoRA in one step: which rows have which adapter, and what that adds to each projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.lora import LoraAdapter
from gpu_consumers.engines.torch.lora_layout import LoraLayout
from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.engines.torch.native.kernels import AddLora
from gpu_consumers.engines.torch.projections import Projection

TILE_ROWS: Final = 8
"""Rows that the compiled kernel takes at once; lora.cpp has versions for 1 to so many."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows [begin, end) have one adapter."""

    begin: int
    end: int
    adapter: LoraAdapter


class LoraStep:
    """Rows without an adapter are left as they are. Every row is computed by itself, whoever is beside it."""

    def __init__(
        self, layout: LoraLayout, adapters: Sequence[LoraAdapter | None], kernels: Kernels | None = None
    ) -> None:
        """adapters: of each row. The fewer times the adapter changes from row to row, the better.
        kernels: the compiled ones, for adapters whose weights lie as they read them.
        """
        self._layout = layout
        runs = _runs(adapters)
        self._runs = {kind: tuple(run for run in runs if kind in run.adapter.kinds) for kind in layout.shapes}
        rank = max((adapter.rank for adapter in adapters if adapter is not None), default=0)
        self._adders: dict[Projection, AddLora] = {}
        if kernels is not None:
            inner = torch.empty(len(adapters), layout.most_columns * rank, dtype=kernels.dtype)
            for kind, tiles in _tiled(self._runs).items():
                self._adders[kind] = kernels.adder(tiles, layout.span_tables[kind], inner)

    def add_to(self, out: Tensor, layer: int, kind: Projection, x: Tensor) -> Tensor:
        """`out` itself, with x A B added to each row of [rows, outputs] in place. x: [rows, inputs]."""
        if not self._runs[kind]:
            return out
        if self._adders:
            self._adders[kind](x, out, self._layout.offset(layer, kind))
            return out
        for run in self._runs[kind]:
            self._add_run(out[run.begin : run.end], run.adapter, layer, kind, x[run.begin : run.end])
        return out

    def _add_run(self, out: Tensor, adapter: LoraAdapter, layer: int, kind: Projection, x: Tensor) -> None:
        weights, rank = adapter.weights, adapter.rank
        inner = x @ self._layout.a(weights, rank, layer, kind)
        for number, span in enumerate(self._layout.shapes[kind].spans):
            b = self._layout.b(weights, rank, layer, kind, number)
            out[:, span.begin : span.begin + span.outputs].addmm_(inner[:, number * rank : (number + 1) * rank], b)


def _runs(adapters: Sequence[LoraAdapter | None]) -> list[Run]:
    runs, begin = [], 0
    for _, rows in groupby(adapters, key=id):
        of_one = list(rows)
        adapter, end = of_one[0], begin + len(of_one)
        if adapter is not None:
            runs.append(Run(begin, end, adapter))
        begin = end
    return runs


def _tiled(runs: Mapping[Projection, tuple[Run, ...]]) -> dict[Projection, Tensor]:
    """For each projection [tiles, 4]: first row, rows, address of the weights, rank. Equal ones are one tensor."""
    made = {of_kind: _tiles(of_kind) for of_kind in set(runs.values())}
    return {kind: made[of_kind] for kind, of_kind in runs.items()}


def _tiles(runs: tuple[Run, ...]) -> Tensor:
    tiles: list[tuple[int, int, int, int]] = []
    for run in runs:
        address, rank, rows = run.adapter.weights.data_ptr(), run.adapter.rank, run.end - run.begin
        count = -(-rows // TILE_ROWS)
        edges = [run.begin + rows * n // count for n in range(count + 1)]  # of nearly equal size
        tiles.extend((begin, end - begin, address, rank) for begin, end in pairwise(edges))
    return torch.tensor(tiles, dtype=torch.int64).view(-1, 4)
