"""Which blocks of KV memory are free: pure bookkeeping."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class BlockPool:
    """Blocks 0 to `total` - 1. The lowest free ones are handed out first.

    So the blocks in use stay near the front of the memory, where decode attention can run over them as one
    contiguous range without copying.
    """

    def __init__(self, total: int) -> None:
        self._free = list(range(total))  # a sorted list is a heap

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks. Raises ValueError, and takes none, if so many are not free."""
        if count > len(self._free):
            raise ValueError(f"{count} KV blocks wanted and {len(self._free)} free")
        return [heapq.heappop(self._free) for _ in range(count)]

    def release(self, blocks: Iterable[int]) -> None:
        """Give back blocks that `allocate` gave."""
        for block in blocks:
            heapq.heappush(self._free, block)
