"""Which blocks of KV memory are free, held or kept for whoever begins with the same tokens: pure bookkeeping."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

BLOCK_TOKENS: Final = 64


class BlockPool:
    """Blocks 0 to `total` - 1. A block is free, held by one or several sequences, or kept.

    A full block can be given a key that says which tokens it holds, behind which others (see prefix.py). When its last
    holder lets it go it is kept under that key, so that another sequence may hold it too, until its room is needed:
    what was let go first goes first. So `allocate` never has less to give than if nothing were kept.

    The lowest free blocks are handed out first: those in use stay near the front of the memory, where decode
    attention can run over them as one contiguous range without copying.

    max_kept: blocks that may be kept at most; 0 keeps none.
    """

    def __init__(self, total: int, *, max_kept: int = 0) -> None:
        self._total = total
        self._free = list(range(total))  # a sorted list is a heap
        self._holders: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()  # the one to go first is first
        self._max_kept = max_kept
        self._by_key: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, the kept ones among them."""
        return len(self._free) + len(self._kept)

    @property
    def kept_blocks(self) -> int:
        return len(self._kept)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks. Raises ValueError, and takes none, if so many are not free."""
        if count > self.free_blocks:
            raise ValueError(f"{count} KV blocks wanted and {self.free_blocks} free")
        blocks = []
        for _ in range(count):
            if not self._free:
                self._drop_oldest()
            blocks.append(heapq.heappop(self._free))
        self._holders.update(dict.fromkeys(blocks, 1))
        return blocks

    def hold(self, key: bytes) -> int | None:
        """Take the block of this key, beside its other holders. None if there is none."""
        block = self._by_key.get(key)
        if block is None:
            return None
        self._kept.pop(block, None)
        self._holders[block] = self._holders.get(block, 0) + 1
        return block

    def find(self, key: bytes) -> bool:
        """Whether there is a block of this key."""
        return key in self._by_key

    def name(self, block: int, key: bytes) -> None:
        """A held block is full and has this key from now on, unless another block has it already."""
        if self._max_kept and key not in self._by_key:
            self._by_key[key] = block
            self._keys[block] = key

    def forget(self, blocks: Iterable[int]) -> None:
        """What these held blocks hold is of no use to others."""
        for block in blocks:
            key = self._keys.pop(block, None)
            if key is not None:
                del self._by_key[key]

    def release(self, blocks: Iterable[int]) -> None:
        """Give back blocks that `allocate` or `hold` gave, in order of position: the last goes first, as what comes
        behind it is worth nothing without it."""
        for block in reversed(list(blocks)):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            del self._holders[block]
            if block in self._keys:
                self._kept[block] = None
            else:
                heapq.heappush(self._free, block)
        while len(self._kept) > self._max_kept:
            self._drop_oldest()

    def check_integrity(self) -> None:
        """Raises AssertionError when a block is in two states or in none, or a key leads nowhere."""
        free, kept, held = set(self._free), set(self._kept), set(self._holders)
        assert len(free) == len(self._free), "a block is free twice"
        states = free | kept | held
        assert len(states) == len(free) + len(kept) + len(held), "a block is in two states"
        assert states == set(range(self._total)), "a block is in no state"
        assert all(count > 0 for count in self._holders.values()), "a held block has no holder"
        assert {block: key for key, block in self._by_key.items()} == self._keys, "keys and blocks differ"
        assert kept <= set(self._keys) <= kept | held, "a free block has a key, or a kept one none"
        assert len(kept) <= max(self._max_kept, 0), "more is kept than may be"

    def _drop_oldest(self) -> None:
        block, _ = self._kept.popitem(last=False)
        self.forget([block])
        heapq.heappush(self._free, block)
