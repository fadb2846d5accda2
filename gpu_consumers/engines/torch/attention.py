"""Attention of one layer over blocks of KV memory.

Queries come scaled (see rotary), rotated and with their keys already written to memory.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.attention_rule import FULL_ATTENTION, AttentionRule
from gpu_consumers.engines.torch.batch import ChunkIndex, ChunkTable, DecodeIndex, DecodeTable, StepBatch
from gpu_consumers.engines.torch.flash import flash_attention
from gpu_consumers.engines.torch.kv_memory import LayerMemory
from gpu_consumers.engines.torch.native import Kernels

_NO_KERNELS: Final = "a step was made for the compiled kernels, and there are none"


def attend(
    qkv: Tensor,
    batch: StepBatch,
    layer: LayerMemory,
    *,
    query_heads: int,
    rule: AttentionRule = FULL_ATTENTION,
    kernels: Kernels | None = None,
) -> Tensor:
    """[tokens, query heads + 2 * key-value heads, head_dim] -> [tokens, query heads * head_dim]."""
    if batch.paged is not None:
        return flash_attention(qkv[:, :query_heads], batch.paged, layer, rule)
    decodes = batch.decodes
    if decodes is not None and not batch.chunks:
        return _decoded(qkv[:, :query_heads], decodes, layer, rule, kernels)
    out = qkv.new_empty(qkv.shape[0], query_heads, qkv.shape[-1])
    if decodes is not None:
        queries = qkv[: decodes.count, :query_heads]
        out[: decodes.count].flatten(1).copy_(_decoded(queries, decodes, layer, rule, kernels))
    if isinstance(batch.chunks, ChunkTable):
        assert kernels is not None, _NO_KERNELS
        kernels.attend_chunks(
            qkv[:, :query_heads], layer.keys, layer.values, batch.chunks.blocks, batch.chunks.chunks, out,
            window=rule.window, softcap=rule.softcap,
        )  # fmt: skip
        return out.flatten(1)
    for chunk in batch.chunks:
        out[chunk.begin : chunk.end] = chunk_attention(qkv[chunk.begin : chunk.end], chunk, layer, query_heads, rule)
    return out.flatten(1)


def _decoded(
    queries: Tensor,
    decodes: DecodeIndex | DecodeTable,
    layer: LayerMemory,
    rule: AttentionRule,
    kernels: Kernels | None,
) -> Tensor:
    if isinstance(decodes, DecodeIndex):
        return decode_attention(queries, decodes, layer, rule)
    assert kernels is not None, _NO_KERNELS
    return kernels.attend(
        queries, layer.keys, layer.values, decodes.blocks, decodes.lengths, window=rule.window, softcap=rule.softcap
    )


def decode_attention(queries: Tensor, index: DecodeIndex, layer: LayerMemory, rule: AttentionRule) -> Tensor:
    """One query for each sequence: [decodes, query heads, head_dim] -> [decodes, query heads * head_dim].

    Scores are taken block by block over a contiguous range of memory, so the cost is that of the tokens held,
    however different the lengths; only the softmax, which is small, lays sequences side by side.
    Query heads that share a key-value head are rows of one product, so nothing is repeated for them.
    """
    keys, values = layer.keys, layer.values
    if index.gathered is None:
        keys, values = keys[: index.blocks], values[: index.blocks]
    else:
        keys, values = keys.index_select(0, index.gathered), values.index_select(0, index.gathered)
    count, query_heads, head_dim = queries.shape
    _, key_heads, block_tokens, _ = keys.shape
    products, group = index.blocks * key_heads, query_heads // key_heads
    keys = keys.view(products, block_tokens, head_dim)
    values = values.view(products, block_tokens, head_dim)

    asked = queries.index_select(0, index.owner).view(products, group, head_dim)
    by_block = torch.bmm(asked, keys.transpose(1, 2)).view(-1, block_tokens)
    scores = _capped(by_block.index_select(0, index.score_rows).view(count, query_heads, -1), rule)
    weights = scores.add_(index.masks[rule.window]).softmax(-1).view(-1, block_tokens)
    parts = weights.index_select(0, index.weight_rows).view(products, group, block_tokens)
    parts = torch.bmm(parts, values).view(index.blocks, -1)
    return F.embedding_bag(index.members, parts, index.offsets, mode="sum")


def chunk_attention(
    qkv: Tensor, chunk: ChunkIndex, layer: LayerMemory, query_heads: int, rule: AttentionRule
) -> Tensor:
    """Causal attention of one prefill chunk -> [tokens, query heads, head_dim].

    The key-value head stands in the place of the batch, so that its queries share it by a stride of zero.
    """
    tokens, heads, head_dim = qkv.shape
    key_heads = (heads - query_heads) // 2
    queries = qkv[:, :query_heads].view(tokens, key_heads, -1, head_dim).permute(1, 2, 0, 3)
    if chunk.blocks is None:
        keys = qkv[:, query_heads : query_heads + key_heads].transpose(0, 1)
        values = qkv[:, query_heads + key_heads :].transpose(0, 1)
    else:
        keys = _sequence(layer.keys, chunk.blocks, chunk.length)
        values = _sequence(layer.values, chunk.blocks, chunk.length)
    group, mask = query_heads // key_heads, chunk.masks[rule.window]
    keys, values = keys.unsqueeze(1).expand(-1, group, -1, -1), values.unsqueeze(1).expand(-1, group, -1, -1)
    if rule.softcap is None:
        attended = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=1.0
        )
    else:
        attended = _softcapped_attention(queries, keys, values, mask, rule)
    return attended.permute(2, 0, 1, 3).reshape(tokens, query_heads, head_dim)


def _softcapped_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, rule: AttentionRule
) -> Tensor:
    """What torch's own attention has no option for. [key-value heads, group, tokens, head_dim] each."""
    scores = _capped(torch.matmul(queries, keys.transpose(2, 3)), rule)
    if mask is None:
        mask = torch.full_like(scores[0, 0], float("-inf")).triu_(1)
    return torch.matmul(scores.add_(mask).softmax(-1), values)


def _capped(scores: Tensor, rule: AttentionRule) -> Tensor:
    """In place."""
    return scores if rule.softcap is None else scores.div_(rule.softcap).tanh_().mul_(rule.softcap)


def _sequence(memory: Tensor, blocks: Tensor, length: int) -> Tensor:
    """A sequence's keys or values laid out in order: [key-value heads, length, head_dim]."""
    return memory.index_select(0, blocks).transpose(0, 1).flatten(1, 2)[:, :length]
