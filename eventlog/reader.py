"""Reading the log by assignment: explicit partitions from explicit offsets, no group, no commits.

Owned by one thread. Resume, recovery, the registry and the gateway's live tail all read this way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from eventlog.clock import monotonic
from eventlog.errors import LogUnreachable
from eventlog.profile import BrokerProfile
from eventlog.record import Record

Position = tuple[str, int]  # topic, partition
# A partition that was made, or moved, a moment ago.
_LEADERLESS = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_LEADER_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll brought. `ended`: partitions whose end was reached, with the offset that comes next there."""

    records: list[Record]
    ended: Mapping[Position, int]


class LogReader:
    """A consumer that only assigns.

    fetch_wait_ms: how long the broker may hold a fetch that has nothing to bring (the profile says, if None). A
        partition that is assigned meanwhile waits for it, so a reader whose partitions come and go asks for less.
    """

    def __init__(self, profile: BrokerProfile, *, client_id: str, fetch_wait_ms: int | None = None) -> None:
        self._profile = profile
        settings = {**profile.consumer(client_id), "enable.partition.eof": True}
        if fetch_wait_ms is not None:
            settings["fetch.wait.max.ms"] = min(fetch_wait_ms, profile.fetch_wait_ms)
        self._consumer = Consumer(settings)
        self._assigned: dict[Position, int] = {}
        self._ends: dict[Position, int] = {}  # ends that are asked for and not yet reached
        self._pause = threading.Event()

    @property
    def assigned(self) -> Mapping[Position, int]:
        """Partitions with the next offset that `poll` will bring."""
        return self._assigned

    def assign(self, topic: str, partition: int, offset: int, *, watch_end: bool = False) -> None:
        """`assign_all` for one partition."""
        self.assign_all({(topic, partition): offset}, watch_end=watch_end)

    def assign_all(self, starts: Mapping[Position, int], *, watch_end: bool = False) -> None:
        """Read from these offsets on (numbers; OFFSET_BEGINNING costs librdkafka half a second).

        watch_end: ask the broker where the logs end now, so that `ended` is told without waiting for an empty fetch.
        All are asked before the first is read: behind a fetch that waits, each answer takes as long as it waits.
        """
        if watch_end and self._profile.kind == "kafka":  # the embedded broker's answer is too low
            self._ends |= {(topic, partition): self.bounds(topic, partition)[1] for topic, partition in starts}
        again = [
            TopicPartition(topic, partition) for topic, partition in starts if (topic, partition) in self._assigned
        ]
        if again:
            self._consumer.incremental_unassign(again)
        self._consumer.incremental_assign([TopicPartition(*position, offset) for position, offset in starts.items()])
        self._assigned |= starts

    def unassign(self, topic: str, partition: int) -> None:
        self._ends.pop((topic, partition), None)
        if self._assigned.pop((topic, partition), None) is not None:
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def poll(self, timeout_s: float, max_records: int = 500) -> Batch:
        """The next records, or an empty batch after `timeout_s`. Raises LogUnreachable on a fatal error only."""
        records: list[Record] = []
        ended = self._reached_ends()
        if ended:
            timeout_s = 0.0
        for message in self._consume(timeout_s, max_records) if self._assigned else []:
            position = _position(message)
            error = message.error()
            if error is None:
                record = Record.of(message, self._profile.codec)
                records.append(record)
                if position in self._assigned:
                    self._assigned[position] = record.offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ended[position] = message.offset() or 0
            elif error.fatal():
                raise LogUnreachable(error.str())
        return Batch(records, ended | self._reached_ends())

    def _consume(self, timeout_s: float, max_records: int) -> list[KafkaMessage]:
        """Wait for one message, then take what is there: asked for many, librdkafka waits until it has them all."""
        first = self._consumer.consume(1, timeout_s)
        return first + self._consumer.consume(max_records - 1, 0) if first else first

    def _reached_ends(self) -> dict[Position, int]:
        reached = {position: end for position, end in self._ends.items() if self._assigned[position] >= end}
        for position in reached:
            del self._ends[position]
        return reached

    def bounds(self, topic: str, partition: int, timeout_s: float = 10.0) -> tuple[int, int]:
        """(first offset, next offset to be written). The second is a lower bound on the embedded broker."""
        give_up_at = monotonic() + timeout_s
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or monotonic() >= give_up_at:
                    raise LogUnreachable(f"no answer about {topic}/{partition}: {error.args[0]}") from error
                self._pause.wait(_LEADER_PAUSE_S)
            else:
                return int(low), int(high)

    def offset_at(self, topic: str, partition: int, at_ms: int, timeout_s: float = 10.0) -> int:
        """The first offset written at or after this time: where the log of a request made then can begin.

        The embedded broker can't be asked for times: there it is the first offset.
        """
        low, high = self.bounds(topic, partition, timeout_s)
        if self._profile.kind == "embedded":
            return low
        found = self._consumer.offsets_for_times([TopicPartition(topic, partition, at_ms)], timeout=timeout_s)
        offset = int(found[0].offset)
        return high if offset < 0 else offset

    def read_to_end(self, starts: Mapping[Position, int], *, idle_timeout_s: float = 30.0) -> Iterator[Record]:
        """Every record from these offsets up to the end as it is found, partition by partition as they come.

        Leaves nothing assigned. Raises LogUnreachable when nothing at all came for `idle_timeout_s`.
        """
        self.assign_all(starts, watch_end=True)
        open_positions = set(starts)
        idle_s = 0.0
        while open_positions:
            batch = self.poll(0.1)
            yield from batch.records
            open_positions -= set(batch.ended)
            idle_s = 0.0 if batch.records or batch.ended else idle_s + 0.1
            if idle_s >= idle_timeout_s:
                raise LogUnreachable(f"{sorted(open_positions)} did not end within {idle_timeout_s:.0f} s")
        for topic, partition in starts:
            self.unassign(topic, partition)

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _position(message: KafkaMessage) -> Position:
    return message.topic() or "", message.partition() or 0
