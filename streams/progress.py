"""Which records of a partition are taken, which are done, and which may be acknowledged now. Pure; one loop's own.

Records are acknowledged in order only: Faust commits past an unacknowledged record when it is the very one that the
last commit points to, or the first of a partition, so a gap must never reach it. And after a rebalance Faust reads
again what was not committed; those records are known here, so that nothing is done twice within one process.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

H = TypeVar("H")
Position = tuple[str, int]  # topic, partition


@dataclass(slots=True)
class _Taken(Generic[H]):
    offset: int
    handle: H
    done: bool = False


@dataclass(slots=True)
class _Partition(Generic[H]):
    open: deque[_Taken[H]] = field(default_factory=deque)  # by offset; its head is never done
    by_offset: dict[int, _Taken[H]] = field(default_factory=dict)
    next_offset: int = 0


class Progress(Generic[H]):
    """Handles (Faust's events) by position and offset, between `take` and the acknowledgement."""

    def __init__(self) -> None:
        self._partitions: dict[Position, _Partition[H]] = {}
        self._open_count = 0

    @property
    def open_count(self) -> int:
        """Records taken and not yet acknowledged."""
        return self._open_count

    def next_offset(self, position: Position) -> int:
        """The offset behind the last record taken; 0 before the first."""
        partition = self._partitions.get(position)
        return 0 if partition is None else partition.next_offset

    def take(self, position: Position, offset: int, handle: H) -> bool:
        """True: a new record, to be worked on. False: it was taken before.

        Of a record taken before, the new handle replaces the old one; if it was acknowledged before, the caller
        acknowledges it again at once (`is_acknowledged`).
        """
        partition = self._partitions.setdefault(position, _Partition())
        if offset < partition.next_offset:
            known = partition.by_offset.get(offset)
            if known is not None:
                known.handle = handle
            return False
        taken = _Taken(offset, handle)
        partition.open.append(taken)
        partition.by_offset[offset] = taken
        partition.next_offset = offset + 1
        self._open_count += 1
        return True

    def is_acknowledged(self, position: Position, offset: int) -> bool:
        """The record is behind the watermark: all up to it is done."""
        partition = self._partitions.get(position)
        return partition is not None and offset < partition.next_offset and offset not in partition.by_offset

    def done(self, position: Position, offset: int) -> list[H]:
        """The record's outputs are in the log: handles that may be acknowledged now, in order. Twice is as once."""
        partition = self._partitions[position]
        taken = partition.by_offset.get(offset)
        if taken is None:
            return []
        taken.done = True
        ready: list[H] = []
        while partition.open and partition.open[0].done:
            first = partition.open.popleft()
            del partition.by_offset[first.offset]
            ready.append(first.handle)
        self._open_count -= len(ready)
        return ready
