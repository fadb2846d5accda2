"""Watches that what is done is committed, too. Pure.

What may be committed is our own count (`streams/progress.py`), but when and whether it is, is Faust's and the broker's
business. Should commits hang while records go on to be taken and done, nobody would see it until the process ends, and
then all since the last commit is read and decided again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.errors import CommitStuck
from streams.progress import Position


@dataclass(frozen=True, slots=True)
class _Behind:
    """A partition whose committed offset is behind what is done. since_s: of this count; grew_s: more was done then."""

    committed: int | None
    watermark: int
    since_s: float
    grew_s: float


@dataclass(slots=True)
class CommitWatch:
    """One stage's. Times are seconds on a clock that never goes back.

    An outage of the log stops commits and acknowledgements alike, and ends by itself. So time counts only while more
    is done: when nothing was for half of `stuck_after_s`, the count begins anew with the next record that is.
    """

    name: str
    stuck_after_s: float
    _behind: dict[Position, _Behind] = field(default_factory=dict)

    def look(self, done: Mapping[Position, int], committed: Mapping[Position, int], *, now_s: float) -> None:
        """Raises CommitStuck if a partition's committed offset stood still for too long while more was done.

        done: of each partition that is ours now, the offset below which all is done. One that is not in it is not
            ours, and forgotten: whoever has it commits it.
        committed: what the broker has said is committed; a partition without an entry has none.
        """
        behind = {
            position: self._counted(position, watermark, committed.get(position), now_s)
            for position, watermark in done.items()
            if watermark > committed.get(position, 0)
        }
        self._behind = behind
        for position, seen in behind.items():
            if now_s - seen.since_s > self.stuck_after_s and not self._is_quiet(seen, now_s):
                raise CommitStuck(self._why(position, seen))

    def _counted(self, position: Position, watermark: int, committed: int | None, now_s: float) -> _Behind:
        seen = self._behind.get(position)
        if seen is None or seen.committed != committed:
            return _Behind(committed, watermark, now_s, now_s)
        if watermark == seen.watermark:
            return seen
        return _Behind(committed, watermark, now_s if self._is_quiet(seen, now_s) else seen.since_s, now_s)

    def _is_quiet(self, seen: _Behind, now_s: float) -> bool:
        return now_s - seen.grew_s >= self.stuck_after_s / 2

    def _why(self, position: Position, seen: _Behind) -> str:
        topic, partition = position
        return (
            f"{self.name}: in {topic}/{partition} all below offset {seen.watermark} is done, and the committed offset "
            f"has stood at {seen.committed or 0} for more than {self.stuck_after_s:.0f} s"
        )
