from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as apply_in_part

from gpu_consumers.engines.torch.rotary import RotaryLayout, RotaryTable


@pytest.mark.parametrize("head_dim", [16, 24])
def test_heads_turn_as_in_transformers_and_queries_come_out_scaled(head_dim: int) -> None:
    config = LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, num_key_value_heads=2, head_dim=head_dim)
    embedding = LlamaRotaryEmbedding(config)
    cos, sin = embedding(torch.zeros(1), torch.arange(50).unsqueeze(0))
    positions = torch.tensor([0, 7, 49, 7])
    heads = torch.randn(4, 6, head_dim, generator=torch.Generator().manual_seed(1))
    queries, keys = apply_rotary_pos_emb(
        heads[:, :4].transpose(0, 1), heads[:, 4:].transpose(0, 1), cos[:, positions], sin[:, positions], 0
    )
    table = RotaryTable(cos[0], sin[0], query_heads=4, key_heads=2)
    table.at(positions, torch.float32).apply(heads)
    torch.testing.assert_close(heads[:, :4], queries[0].transpose(0, 1) * head_dim**-0.5)
    torch.testing.assert_close(heads[:, 4:], keys[0].transpose(0, 1))


def test_where_a_part_of_a_head_turns_scores_are_those_of_transformers() -> None:
    layout, positions = RotaryLayout(head_dim=12, turning=8), torch.tensor([0, 3, 9])
    angles = torch.outer(torch.arange(10.0), torch.tensor([1.0, 0.5, 0.1, 0.02])).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    heads = torch.randn(3, 2, 12, generator=torch.Generator().manual_seed(2))  # a query and a key
    query, key = apply_in_part(  # type: ignore[no-untyped-call]
        heads[:, :1], heads[:, 1:], cos[positions], sin[positions]
    )
    ours = heads[:, :, layout.order()].contiguous()
    table = RotaryTable(*layout.factors(cos, sin), query_heads=1, key_heads=1, query_scale=0.3)
    table.at(positions, torch.float32).apply(ours)
    torch.testing.assert_close(ours[:, 0] @ ours[:, 1].T, 0.3 * query[:, 0] @ key[:, 0].T)
    assert sorted(layout.order()) == list(range(12))


def test_the_layout_of_heads_that_turn_as_a_whole_changes_nothing() -> None:
    layout, table = RotaryLayout(8, 8), torch.randn(3, 8)
    assert layout.order() == list(range(8))
    assert layout.factors(table, table) == (table, table)
