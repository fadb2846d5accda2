"""Which offset of a partition may be committed: the contiguous watermark behind finished work."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class OffsetTracker:
    """Offsets of one partition, between taken and done. Pure; owned by the thread that commits.

    A commit of `n` says that everything below n is done. Work is done out of order, so the watermark only moves past
    an offset when all before it are done: after a crash, each unfinished one is read again and none is lost.
    """

    _open: dict[int, None] = field(default_factory=dict)  # insertion order is offset order
    _next: int | None = None
    _committed: int | None = None

    def take(self, offset: int) -> None:
        """This record was handed out. Offsets rise; gaps (compaction, control records) are fine.

        Raises ValueError for an offset that does not rise.
        """
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} was taken after {self._next - 1}")
        self._open[offset] = None
        self._next = offset + 1

    def done(self, offset: int) -> None:
        """The record's work is finished; twice is the same as once. Raises ValueError if it was never taken."""
        if self._next is None or offset >= self._next:
            raise ValueError(f"offset {offset} is done but was never taken")
        self._open.pop(offset, None)

    @property
    def open_count(self) -> int:
        """Records handed out and not done."""
        return len(self._open)

    @property
    def watermark(self) -> int | None:
        """Everything below is done; None before the first record."""
        return next(iter(self._open), self._next)

    def to_commit(self) -> int | None:
        """The watermark if it moved since the last call that gave it, else None."""
        watermark = self.watermark
        if watermark == self._committed:
            return None
        self._committed = watermark
        return watermark

    def commit_failed(self) -> None:
        """The broker refused what `to_commit` gave (in the middle of a rebalance, say): give it again."""
        self._committed = None
