"""One partition of a work topic while this worker holds it: what was taken, what is finished, when to pause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from eventlog.offsets import OffsetTracker


@dataclass(frozen=True, slots=True)
class WaterMarks:
    """How many unfinished records of one partition a worker holds: at `high` it pauses it, at `low` it goes on."""

    high: int = 64
    low: int = 32


@dataclass(slots=True, eq=False)
class HeldPartition:
    """From assignment to revocation; a partition that comes back is another one.

    held: False from the moment that it is revoked.
    fresh_from: offset from which records were written after we got it, so that nobody else can have begun with
        them; None until that is known.
    next_offset: the next record that the group's consumer brings; None before the first.
    ahead_offset: how far it was searched for cancels while it was paused.
    cancelled_ahead: requests that did not come yet, and whose cancel was found ahead.
    """

    topic: str
    partition: int
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
    held: bool = True
    paused: bool = False
    fresh_from: int | None = None
    next_offset: int | None = None
    ahead_offset: int = 0
    cancelled_ahead: set[str] = field(default_factory=set)

    def take(self, offset: int) -> bool:
        """A record came. False if it came before: then it is in hand or done."""
        if self.next_offset is not None and offset < self.next_offset:
            return False
        self.tracker.take(offset)
        self.next_offset = offset + 1
        return True

    def may_have_begun(self, offset: int) -> bool:
        """An earlier owner may have begun with this record."""
        return self.fresh_from is None or offset < self.fresh_from

    def should_pause(self, marks: WaterMarks) -> bool:
        return not self.paused and self.tracker.open_count >= marks.high

    def should_resume(self, marks: WaterMarks) -> bool:
        return self.paused and self.tracker.open_count <= marks.low
