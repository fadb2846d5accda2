"""Attention by FlashAttention over paged KV memory: all tokens of a step, prefill and decode, in one call a layer.

torch brings the kernel (`torch.nn.attention.varlen`); it runs on CUDA devices from Ampere on, in half precision.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from gpu_consumers.engines.torch.attention_rule import FULL_ATTENTION, AttentionRule
from gpu_consumers.engines.torch.kv_memory import KvMemory, LayerMemory

_DTYPES: Final = frozenset({torch.bfloat16, torch.float16})
_AMPERE: Final = 8
_MAX_HEAD_DIM: Final = 256


@dataclass(frozen=True, slots=True)
class PagedIndex:
    """What each sequence of a step asks, and where its keys are. All tensors int32.

    query_starts: [sequences + 1] where each one's tokens begin in the step. most_queries: of one sequence.
    lengths: [sequences] tokens of each, those of this step included. most_keys: an upper bound of them.
    blocks: [sequences, columns] in order of position, anything behind the last.
    """

    query_starts: Tensor
    lengths: Tensor
    blocks: Tensor
    most_queries: int
    most_keys: int


def paged_index(memory: KvMemory, spans: list[tuple[int, int, int]], device: torch.device) -> PagedIndex:
    """spans: (slot, tokens in this step, length with them) of each sequence, in the order of the step."""
    held = [memory.blocks_of(slot) for slot, _, _ in spans]
    columns = max(map(len, held))
    starts = [0]
    for _, tokens, _ in spans:
        starts.append(starts[-1] + tokens)
    lengths = [length for _, _, length in spans]
    return PagedIndex(
        query_starts=index_tensor(starts, device, torch.int32),
        lengths=index_tensor(lengths, device, torch.int32),
        blocks=index_tensor([blocks + [0] * (columns - len(blocks)) for blocks in held], device, torch.int32),
        most_queries=max(tokens for _, tokens, _ in spans),
        most_keys=max(lengths),
    )


def index_tensor(values: Any, device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Numbers on the device. To CUDA from pinned memory, so that the copy need not be waited for."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)


def flash_attention(
    queries: Tensor, index: PagedIndex, layer: LayerMemory, rule: AttentionRule = FULL_ATTENTION
) -> Tensor:
    """[tokens, query heads, head_dim], scaled and rotated -> [tokens, query heads * head_dim].

    The layer's keys are in memory already, and lie tokens first (`kv_memory.PAGED`).
    """
    before = -1 if rule.window is None else rule.window - 1
    attended: Any = varlen_attn(
        queries, layer.keys.transpose(1, 2), layer.values.transpose(1, 2), index.query_starts, None,
        index.most_queries, index.most_keys, scale=1.0, window_size=(before, 0), enable_gqa=True,
        seqused_k=index.lengths, block_table=index.blocks,
    )  # fmt: skip
    return attended.flatten(1)  # type: ignore[no-any-return]


def can_flash(
    device: torch.device, dtype: torch.dtype, head_dim: int, rules: Collection[AttentionRule] = (FULL_ATTENTION,)
) -> bool:
    """Whether the kernel takes this here, in layers of these rules."""
    if any(rule.softcap is not None for rule in rules):
        return False
    if device.type != "cuda" or dtype not in _DTYPES or head_dim > _MAX_HEAD_DIM or head_dim % 8:
        return False
    return torch.cuda.get_device_capability(device)[0] >= _AMPERE
