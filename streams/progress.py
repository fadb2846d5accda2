"""Which records of a partition are taken, which are done, and how far it may be committed. Pure; one loop's own.

After a rebalance Faust reads again what was not committed; those records are known here, so that nothing is done twice
within one process.
"""

from __future__ import annotations

from eventlog.offsets import OffsetTracker

Position = tuple[str, int]  # topic, partition


class Progress:
    """Records by position and offset, from `take` to `done`."""

    def __init__(self) -> None:
        self._trackers: dict[Position, OffsetTracker] = {}
        self._next_offsets: dict[Position, int] = {}

    @property
    def open_count(self) -> int:
        """Records taken and not yet done."""
        return sum(tracker.open_count for tracker in self._trackers.values())

    def next_offset(self, position: Position) -> int:
        """The offset behind the last record taken; 0 before the first."""
        return self._next_offsets.get(position, 0)

    def watermarks(self) -> dict[Position, int]:
        """Of each partition that records were taken from: the offset below which all is done."""
        found = {position: tracker.watermark for position, tracker in self._trackers.items()}
        return {position: offset for position, offset in found.items() if offset is not None}

    def take(self, position: Position, offset: int) -> bool:
        """True: a new record, to be worked on. False: it was taken before, and is in hand or done."""
        if offset < self.next_offset(position):
            return False
        self._trackers.setdefault(position, OffsetTracker()).take(offset)
        self._next_offsets[position] = offset + 1
        return True

    def done(self, position: Position, offset: int) -> None:
        """The record's outputs are in the log; twice is as once. Raises KeyError for one that was never taken."""
        self._trackers[position].done(offset)
