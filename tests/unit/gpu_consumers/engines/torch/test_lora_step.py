"""What LoRA adds to a step, held against x A B written out; compiled and with torch's own operations."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gpu_consumers.engines.torch.lora import LoraAdapter
from gpu_consumers.engines.torch.lora_layout import LoraLayout
from gpu_consumers.engines.torch.lora_step import TILE_ROWS, LoraStep
from gpu_consumers.engines.torch.native import Kernels, kernels_for
from gpu_consumers.engines.torch.projections import FusedShape, Projection, fused_shape

LAYERS = 2
KINDS = frozenset(Projection)
CLOSE = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (1.6e-2, 0.1)}


def shapes(hidden: int, keys: int, inner: int) -> dict[Projection, FusedShape]:
    return {
        Projection.QKV: fused_shape(hidden, [("query", hidden), ("key", keys), ("value", keys)], ("q", "k", "v")),
        Projection.ATTENTION_OUT: fused_shape(hidden, [("out", hidden)], ("o",)),
        Projection.GATE_UP: fused_shape(hidden, [("gate", inner), ("up", inner)], ("gate", "up")),
        Projection.DOWN: fused_shape(inner, [("down", hidden)], ("down",)),
    }


LAYOUT = LoraLayout(shapes(hidden=80, keys=48, inner=272), LAYERS)


def adapter(
    layout: LoraLayout, rank: int, dtype: torch.dtype, seed: int, kinds: frozenset[Projection] = KINDS
) -> LoraAdapter:
    weights = torch.randn(layout.numbers(rank), generator=torch.Generator().manual_seed(seed)).to(dtype) / 4
    return LoraAdapter(weights, rank, kinds)


@cache
def laid_out(layout: LoraLayout, one: LoraAdapter | None, kernels: Kernels | None) -> LoraAdapter | None:
    """As the kernels read it."""
    if one is None or kernels is None:
        return one
    return replace(one, weights=layout.for_kernels(one.weights, one.rank))


def written_out(layout: LoraLayout, kind: Projection, layer: int, x: Tensor, one: LoraAdapter | None) -> Tensor:
    """x A B of one row, in double."""
    shape = layout.shapes[kind]
    out = torch.zeros(sum(span.outputs for span in shape.spans), dtype=torch.float64)
    if one is None or kind not in one.kinds:
        return out
    inner = x.double() @ layout.a(one.weights, one.rank, layer, kind).double()
    for number, span in enumerate(shape.spans):
        b = layout.b(one.weights, one.rank, layer, kind, number).double()
        out[span.begin : span.begin + span.outputs] = inner[number * one.rank : (number + 1) * one.rank] @ b
    return out


@pytest.fixture(params=[(torch.float32, True), (torch.bfloat16, True), (torch.float32, False)],
                ids=["compiled float32", "compiled bfloat16", "torch float32"])  # fmt: skip
def way(request: pytest.FixtureRequest) -> tuple[torch.dtype, bool]:
    found: tuple[torch.dtype, bool] = request.param
    return found


def assert_each_row_has_its_own(
    layout: LoraLayout, adapters: list[LoraAdapter | None], way: tuple[torch.dtype, bool], kernels_dir: Path
) -> None:
    dtype, compiled = way
    kernels = kernels_for(dtype, "cpu", kernels_dir) if compiled else None
    assert (kernels is not None) == compiled
    step = LoraStep(layout, [laid_out(layout, one, kernels) for one in adapters], kernels)
    torch.manual_seed(3)
    for kind, shape in layout.shapes.items():
        x = torch.randn(len(adapters), shape.inputs).to(dtype)
        before = torch.randn(len(adapters), sum(span.outputs for span in shape.spans)).to(dtype)
        for layer in range(layout.layers):
            out = before.clone()
            assert step.add_to(out, layer, kind, x) is out
            for row, one in enumerate(adapters):
                added = written_out(layout, kind, layer, x[row], one)
                relative, absolute = CLOSE[dtype]
                expected = before[row].double() + added
                torch.testing.assert_close(out[row].double(), expected, rtol=relative, atol=absolute)
                if not added.any():
                    assert torch.equal(out[row], before[row])


def test_each_row_gets_what_its_own_adapter_adds(way: tuple[torch.dtype, bool], kernels_dir: Path) -> None:
    low, high = adapter(LAYOUT, 16, way[0], 1), adapter(LAYOUT, 48, way[0], 2)
    rows = [low, None, high, high, None, *[low] * 3, *[high] * 21, None]
    assert_each_row_has_its_own(LAYOUT, rows, way, kernels_dir)


@pytest.mark.parametrize("rows", range(1, TILE_ROWS + 2))
def test_runs_of_every_length_are_computed_alike(rows: int, kernels_dir: Path) -> None:
    for way in ((torch.float32, True), (torch.bfloat16, True)):
        assert_each_row_has_its_own(LAYOUT, [adapter(LAYOUT, 16, way[0], 1)] * rows, way, kernels_dir)


def test_an_adapter_adds_to_the_projections_that_it_changes_alone(
    way: tuple[torch.dtype, bool], kernels_dir: Path
) -> None:
    attention = adapter(LAYOUT, 16, way[0], 1, frozenset({Projection.QKV}))
    mlp = adapter(LAYOUT, 16, way[0], 2, frozenset({Projection.DOWN, Projection.GATE_UP}))
    assert_each_row_has_its_own(LAYOUT, [attention, attention, mlp, None], way, kernels_dir)


def test_a_row_that_is_not_a_number_leaves_its_neighbours_alone(
    way: tuple[torch.dtype, bool], kernels_dir: Path
) -> None:
    dtype, compiled = way
    kernels = kernels_for(dtype, "cpu", kernels_dir) if compiled else None
    one = adapter(LAYOUT, 16, dtype, 1)
    x, out = torch.randn(3, 80).to(dtype), torch.zeros(3, 176).to(dtype)
    x[1, 5] = float("nan")
    LoraStep(LAYOUT, [laid_out(LAYOUT, one, kernels)] * 3, kernels).add_to(out, 1, Projection.QKV, x)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_modules_that_are_fused_in_the_checkpoint_have_one_a_and_b() -> None:
    fused = fused_shape(8, [("query", 8), ("key", 8), ("value", 8)], ("attn.c_attn",))
    layout = LoraLayout({Projection.QKV: fused}, layers=3)
    (span,) = layout.shapes[Projection.QKV].spans
    assert (span.module, span.begin, span.outputs) == ("attn.c_attn", 0, 24)
    assert layout.numbers(16) == 3 * 16 * (8 + 24)


def test_the_parts_of_a_layout_fill_it_without_a_gap() -> None:
    weights = torch.arange(LAYOUT.numbers(16))
    seen = [
        part.flatten()
        for layer in range(LAYERS)
        for kind, shape in LAYOUT.shapes.items()
        for part in (
            LAYOUT.a(weights, 16, layer, kind),
            *(LAYOUT.b(weights, 16, layer, kind, number) for number in range(len(shape.spans))),
        )
    ]
    assert torch.equal(torch.cat(seen), weights)


@pytest.mark.parametrize(("hidden", "keys", "has"), [(80, 48, True), (80, 40, False), (72, 48, False)])
def test_sizes_that_do_not_fill_registers_are_left_to_torch(hidden: int, keys: int, has: bool) -> None:
    layout = LoraLayout(shapes(hidden=hidden, keys=keys, inner=272), LAYERS)
    assert layout.has_kernels is has
    if not has:
        low = adapter(layout, 16, torch.float32, 1)
        assert_each_row_has_its_own(layout, [low, None, low], (torch.float32, False), Path())
