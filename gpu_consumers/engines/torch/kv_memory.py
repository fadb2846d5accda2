"""Where keys and values lie: blocks of a fixed number of tokens, and each slot's list of them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.blocks import BLOCK_TOKENS, BlockPool
from gpu_consumers.engines.torch.prefix import PrefixChain, first_key, next_key


@dataclass(frozen=True, slots=True)
class KvShape:
    """layers, key-value heads and head size of the model."""

    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How many tokens a block has, and how they lie in it: [heads, tokens, head_dim], or [tokens, heads, head_dim]."""

    block_tokens: int = BLOCK_TOKENS
    tokens_first: bool = False

    def sizes(self, heads: int, head_dim: int) -> tuple[int, int, int]:
        """Of one block, as it lies."""
        return (self.block_tokens, heads, head_dim) if self.tokens_first else (heads, self.block_tokens, head_dim)

    def blocks_for(self, tokens: int) -> int:
        """How many hold so many."""
        return -(-tokens // self.block_tokens)

    def block_bytes(self, shape: KvShape, dtype: torch.dtype) -> int:
        """Of one block with its keys and values, in all layers together."""
        return shape.layers * 2 * prod(self.sizes(shape.heads, shape.head_dim)) * dtype.itemsize


PAGED: Final = KvLayout(256, tokens_first=True)
"""What FlashAttention reads pages in: on CUDA they have 256 tokens, or a multiple."""


class KvMemory:
    """Per layer [2 (keys, values), blocks, heads, block_tokens, head_dim], or as the layout says.

    Memory: all blocks are reserved at the start, as many as `kv_size.py` says. On a CPU the pages are the kernel's
    promise until they are touched, and blocks are touched from the front, so resident memory is that of the tokens
    held at the busiest time.

    Blocks that hold the same tokens of one tenant's are shared: what a sequence has filled is kept when it leaves, up
    to `prefix_cache_bytes`, and whoever begins with the same tokens holds it instead of running them again.

    Behind the blocks lies one that nobody is given: rows that only fill a step up write to it.

    A block is zeroed when it is handed out: what lies behind a sequence's end is then always finite, and a NaN
    that one sequence left behind can't reach the next one through a weight of zero.
    """

    def __init__(
        self,
        shape: KvShape,
        *,
        blocks: int,
        dtype: torch.dtype,
        device: torch.device,
        prefix_cache_bytes: int = 0,
        layout: KvLayout = KvLayout(),
    ) -> None:
        self.layout = layout
        self.shape = shape
        self.blocks = blocks
        size = (shape.layers, 2, self.blocks + 1, *layout.sizes(shape.heads, shape.head_dim))
        self._memory = _zeros(size, dtype, device)
        self._block_bytes = layout.block_bytes(shape, dtype)
        self._pool = BlockPool(self.blocks, max_kept=prefix_cache_bytes // self._block_bytes)
        self._blocks_of: dict[int, list[int]] = {}
        self._chains: dict[int, PrefixChain] = {}
        self.layers: tuple[LayerMemory, ...] = tuple(self._layer(layer) for layer in self._memory)

    @property
    def free_blocks(self) -> int:
        return self._pool.free_blocks

    @property
    def capacity_tokens(self) -> int:
        return self.blocks * self.layout.block_tokens

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return self.blocks * self._block_bytes

    @property
    def spare_place(self) -> int:
        """In the block that nobody is given."""
        return self.blocks * self.layout.block_tokens

    def place(self, slot: int, position: int) -> int:
        """Where a position of the slot's sequence lies, counted in tokens of the memory."""
        block, offset = divmod(position, self.layout.block_tokens)
        return self._blocks_of[slot][block] * self.layout.block_tokens + offset

    def rows_of(self, places: Tensor) -> Tensor:
        """[tokens] of `place` -> [tokens, 2 * heads] rows of `LayerMemory.rows`: of the keys, then of the values."""
        heads, block_tokens = self.shape.heads, self.layout.block_tokens
        head = torch.arange(heads, device=places.device)
        if self.layout.tokens_first:
            keys = places.unsqueeze(-1) * heads + head
        else:
            block, offset = places // block_tokens, places % block_tokens
            keys = (block.unsqueeze(-1) * heads + head) * block_tokens + offset.unsqueeze(-1)
        return torch.cat((keys, keys + (self.blocks + 1) * heads * block_tokens), dim=-1)

    def blocks_of(self, slot: int) -> list[int]:
        """Blocks of the slot's sequence in order of position."""
        return self._blocks_of.get(slot, [])

    def cached_tokens(self, salt: str, token_ids: Sequence[int]) -> int:
        """How many of the first tokens are held or kept: whole blocks, and never all, as the last one is to be run."""
        key, cached = first_key(salt), 0
        block_tokens = self.layout.block_tokens
        while cached + block_tokens < len(token_ids):
            key = next_key(key, token_ids[cached : cached + block_tokens])
            if not self._pool.find(key):
                break
            cached += block_tokens
        return cached

    def claim(self, salt: str, token_ids: Sequence[int]) -> Claim | None:
        """Hold the blocks of these tokens, before room is made for others: for `begin`, or `drop`. None: not there."""
        chain = PrefixChain(salt, self.layout.block_tokens)
        held: list[int] = []
        for key in chain.push(token_ids):
            block = self._pool.hold(key)
            if block is None:
                self._pool.release(held)
                return None
            held.append(block)
        return Claim(chain, held)

    def begin(self, slot: int, claim: Claim) -> None:
        """A sequence that begins with what was claimed takes the slot."""
        self._chains[slot], self._blocks_of[slot] = claim.chain, claim.blocks

    def drop(self, claim: Claim) -> None:
        self._pool.release(claim.blocks)

    def written(self, slot: int, token_ids: Sequence[int]) -> None:
        """The next tokens of the slot were run, and their keys and values are in memory."""
        chain = self._chains.get(slot)
        if chain is None:
            return
        blocks, first = self._blocks_of[slot], chain.blocks
        for number, key in enumerate(chain.push(token_ids), first):
            self._pool.name(blocks[number], key)

    def spoil(self, slot: int) -> None:
        """The slot's sequence went wrong: let it go, and nothing of it to anybody."""
        self._pool.forget(self._blocks_of.get(slot, ()))
        self.release(slot)

    def make_room(self, lengths: dict[int, int]) -> None:
        """Give each slot blocks enough for its length in tokens. Raises ValueError if there are too few of them: a
        plan that keeps to `EngineInfo.kv_blocks` never asks for more."""
        fresh: list[int] = []
        for slot, tokens in lengths.items():
            held = self._blocks_of.setdefault(slot, [])
            missing = self.layout.blocks_for(tokens) - len(held)
            if missing > 0:
                blocks = self._pool.allocate(missing)
                held.extend(blocks)
                fresh.extend(blocks)
        if fresh:
            self._memory.index_fill_(2, torch.tensor(fresh, device=self._memory.device), 0)

    def _layer(self, held: Tensor) -> LayerMemory:
        keys, values = held.transpose(2, 3) if self.layout.tokens_first else held
        return LayerMemory(keys, values, held.view(-1, self.shape.head_dim))

    def release(self, slot: int) -> None:
        self._chains.pop(slot, None)
        self._pool.release(self._blocks_of.pop(slot, ()))


@dataclass(frozen=True, slots=True)
class Claim:
    """The first blocks of a sequence that is about to begin, held for it."""

    chain: PrefixChain
    blocks: list[int]


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """On a CPU straight from the kernel, which gives a page when it is first touched: torch.zeros would touch all."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return torch.frombuffer(mmap.mmap(-1, prod(size) * dtype.itemsize), dtype=dtype).view(size)


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """One layer's part: `keys` and `values` [blocks, heads, block_tokens, head_dim]; `rows`: both, flat as they lie."""

    keys: Tensor
    values: Tensor
    rows: Tensor
