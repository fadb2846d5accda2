"""Where keys and values lie: blocks of a fixed number of tokens, and each slot's list of them."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from math import prod
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.blocks import BlockPool

BLOCK_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class KvShape:
    """layers, key-value heads and head size of the model."""

    layers: int
    heads: int
    head_dim: int


class KvMemory:
    """Per layer [2 (keys, values), blocks, heads, BLOCK_TOKENS, head_dim].

    Memory: blocks for `slots` sequences of `max_context_tokens` each are reserved at start, so that no sequence
    which was admitted can run out of room: slots * max_context_tokens (rounded up to a block) * layers * heads *
    head_dim * 2 * bytes of the dtype. On a CPU the pages are the kernel's promise until they are touched, and
    blocks are touched from the front, so resident memory is that of the tokens held at the busiest time.

    A block is zeroed when it is handed out: what lies behind a sequence's end is then always finite, and a NaN
    that one sequence left behind can't reach the next one through a weight of zero.
    """

    def __init__(
        self, shape: KvShape, *, slots: int, max_context_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        per_slot = -(-max_context_tokens // BLOCK_TOKENS)
        self.shape = shape
        self.blocks = slots * per_slot
        size = (shape.layers, 2, self.blocks, shape.heads, BLOCK_TOKENS, shape.head_dim)
        self._memory = _zeros(size, dtype, device)
        self._pool = BlockPool(self.blocks)
        self._blocks_of: dict[int, list[int]] = {}
        self.layers: tuple[LayerMemory, ...] = tuple(
            LayerMemory(keys=layer[0], values=layer[1], rows=layer.view(-1, shape.head_dim)) for layer in self._memory
        )

    @property
    def free_blocks(self) -> int:
        return self._pool.free_blocks

    @property
    def capacity_tokens(self) -> int:
        return self.blocks * BLOCK_TOKENS

    def blocks_of(self, slot: int) -> list[int]:
        """Blocks of the slot's sequence in order of position."""
        return self._blocks_of.get(slot, [])

    def make_room(self, lengths: dict[int, int]) -> None:
        """Give each slot blocks enough for its length in tokens."""
        fresh: list[int] = []
        for slot, tokens in lengths.items():
            held = self._blocks_of.setdefault(slot, [])
            missing = -(-tokens // BLOCK_TOKENS) - len(held)
            if missing > 0:
                blocks = self._pool.allocate(missing)
                held.extend(blocks)
                fresh.extend(blocks)
        if fresh:
            self._memory.index_fill_(2, torch.tensor(fresh, device=self._memory.device), 0)

    def release(self, slot: int) -> None:
        self._pool.release(self._blocks_of.pop(slot, ()))


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On a CPU straight from the kernel, which gives a page when it is first touched: torch.zeros would touch all."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return torch.frombuffer(mmap.mmap(-1, prod(size) * dtype.itemsize), dtype=dtype).view(size)


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """One layer's part: `keys` and `values` [blocks, heads, BLOCK_TOKENS, head_dim]; `rows` is both, flat."""

    keys: Tensor
    values: Tensor
    rows: Tensor
