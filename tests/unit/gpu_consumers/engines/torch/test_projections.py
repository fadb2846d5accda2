from __future__ import annotations

import pytest
import torch

from gpu_consumers.engines.torch.projections import Part, fused, fused_shape

QKV = [("query", 8), ("key", 4), ("value", 4)]


def test_parts_tell_where_they_lie_in_the_fused_weight_and_in_the_checkpoint() -> None:
    apart = fused_shape(16, QKV, ["q_proj", "k_proj", "v_proj"])
    assert apart.parts[1] == Part("key", "k_proj", module_begin=0, begin=8, rows=4)
    together = fused_shape(16, QKV, ["c_attn"])
    assert together.parts[1] == Part("key", "c_attn", module_begin=8, begin=8, rows=4)
    assert (apart.outputs, together.outputs) == (16, 16)
    assert [part.name for part in apart.of_module("v_proj")] == ["value"]
    assert [part.name for part in together.of_module("c_attn")] == ["query", "key", "value"]


@pytest.mark.parametrize("biased", [True, False])
def test_what_is_fused_gives_all_outputs_in_the_order_that_is_asked_for(biased: bool) -> None:
    sources = [(torch.randn(rows, 3), torch.randn(rows) if biased else None) for rows in (2, 4)]
    x = torch.randn(5, 3)
    apart = torch.cat([torch.nn.functional.linear(x, weight, bias) for weight, bias in sources], -1)
    order = (5, 0, 1, 2, 4, 3)
    for row_order, expected in ((None, apart), (order, apart[:, list(order)])):
        weight, bias = fused(sources, row_order)
        torch.testing.assert_close(torch.nn.functional.linear(x, weight, bias), expected)
