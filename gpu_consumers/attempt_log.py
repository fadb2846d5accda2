"""Finds what earlier workers left of requests in the token logs.

A worker that comes to a long queue recovers it in many small batches, and few of its requests were ever begun with.
So a partition of the token log is gone through once, for the ids of those that were: an index, which later batches
only continue. The few whose id is in it are then read in full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from eventlog.reader import Position
from eventlog.record import OnUnreadable, Record, ignored
from gpu_consumers.prior_attempts import PriorAttempts
from gpu_consumers.work import Work
from schemas.errors import ContractError
from schemas.events import TokenLogEvent
from schemas.ids import partition_of
from schemas.topics import tokens_topic

CLOCK_SKEW_MS = 10_000
"""Clocks of two machines may differ by so much: a log is read from that long before a work order was written."""

_WORKERS_EVENTS = tuple(
    b"headrace.v1." + name for name in (b"GenerationStarted", b"GenerationFinished", b"GenerationFailed")
)


class Log(Protocol):
    """What is asked of a LogReader."""

    def offset_at(self, topic: str, partition: int, at_ms: int) -> int: ...

    def read_to_end(self, starts: Mapping[Position, int]) -> Iterable[Record]: ...


@dataclass(slots=True)
class _Index:
    """Requests that a worker wrote about, by id, with the offset of the first such record.

    since_ms: it holds all that was written from then on; up to next_offset.
    """

    since_ms: int
    next_offset: int
    first_offsets: dict[bytes, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.next_offset = record.offset + 1
        if record.key is not None and record.header("ce_type") in _WORKERS_EVENTS:
            self.first_offsets.setdefault(record.key, record.offset)


class AttemptLog:
    """Owned by the recovery's thread."""

    def __init__(self, log: Log, *, unreadable: OnUnreadable = ignored) -> None:
        self._log = log
        self._unreadable = unreadable
        self._indexes: dict[Position, _Index] = {}

    def forget(self) -> None:
        """Drop the indexes, when no more batches are to be expected for a while."""
        self._indexes.clear()

    def read(self, batch: Iterable[Work]) -> Mapping[str, PriorAttempts]:
        """What the logs hold of these requests now, by request id. Raises LogUnreachable."""
        by_position: dict[Position, list[Work]] = defaultdict(list)
        for work in batch:
            by_position[tokens_topic(work.order.tenant), partition_of(work.order.request_id)].append(work)
        self._index(by_position)
        found = {work.order.request_id: PriorAttempts() for works in by_position.values() for work in works}
        begun = {key: prior for request_id, prior in found.items() if self._is_begun(key := request_id.encode())}
        for record in self._log.read_to_end(self._starts(begun)) if begun else ():
            prior = begun.get(record.key or b"")
            if prior is not None:
                for event in self._events(record):
                    prior.apply(event)
        return found

    def _index(self, by_position: Mapping[Position, list[Work]]) -> None:
        """Bring the index of each of these partitions to its log's end."""
        for position, works in by_position.items():
            since_ms = min(work.written_at_ms for work in works) - CLOCK_SKEW_MS
            index = self._indexes.get(position)
            if index is None or since_ms < index.since_ms:
                self._indexes[position] = _Index(since_ms, self._log.offset_at(*position, since_ms))
        starts = {position: self._indexes[position].next_offset for position in by_position}
        for record in self._log.read_to_end(starts):
            self._indexes[record.topic, record.partition].add(record)

    def _is_begun(self, key: bytes) -> bool:
        return any(key in index.first_offsets for index in self._indexes.values())

    def _starts(self, begun: Mapping[bytes, PriorAttempts]) -> dict[Position, int]:
        starts = {}
        for position, index in self._indexes.items():
            offsets = [index.first_offsets[key] for key in begun if key in index.first_offsets]
            if offsets:
                starts[position] = min(offsets)
        return starts

    def _events(self, record: Record) -> Iterator[TokenLogEvent]:
        """The event in the record; none where it can't be read, as for no reader of the token log it says anything."""
        try:
            event = record.event()
        except ContractError as error:
            self._unreadable(error)
            return
        if isinstance(event, TokenLogEvent):
            yield event
