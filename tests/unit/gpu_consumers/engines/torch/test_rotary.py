from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from gpu_consumers.engines.torch.rotary import RotaryTable


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
