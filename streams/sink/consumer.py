"""The loop: poll, batch, insert, commit. One thread owns the consumer, the batch and the store.

What happens when:
- ClickHouse does not take a batch: the partitions are paused, the group is kept alive by polling, and the same batch is
  tried again with growing waits. Kafka holds what comes meanwhile.
- partitions are taken away: the batch is inserted and committed if that works at once, else forgotten. Rebalances take
  all partitions (the eager protocol), so nothing of a forgotten batch stays behind in our positions.
- partitions are given: the marks are asked for, and reading starts where they and the committed offsets say.
- a record can't be read: its bytes are a row of `events`, and where nobody else writes its dead letter, the sink does.
  Letters are acknowledged before their batch is inserted, so a record that has its row has its letter; while the log
  does not take them, the batch waits as it waits for ClickHouse. A letter that can't ever be written is counted.
- the commit fails: nothing; the next owner reads the records again and the marks drop them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from eventlog.clock import monotonic, now_us
from eventlog.errors import LogUnreachable
from eventlog.group import GroupMember
from eventlog.record import Record
from schemas.topics import TOPIC_KINDS
from streams.sink.batch import Batch, Marks
from streams.sink.errors import ClickHouseUnavailable, LettersWait
from streams.sink.letters import SinkLetters, is_the_sinks
from streams.sink.log_ids import LogIds
from streams.sink.metrics import SinkMetrics
from streams.sink.retry import Backoff
from streams.sink.rows import Partition
from streams.sink.settings import SinkSettings
from streams.sink.store import Store

log = logging.getLogger("headrace.sink")

T = TypeVar("T")

_POLL_SECONDS = 0.1
_POLL_RECORDS = 2_000
_DAY_US = 86_400_000_000
_COMMITTED_TIMEOUT_S = 10.0
# A pattern that no topic matches yet is reported as an unknown topic.
_NO_NEWS = (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART)


def topic_patterns() -> list[str]:
    """Every topic of the topic table, as librdkafka takes them: a leading ^ makes a pattern."""
    return [rf"^{kind.name.replace('.', chr(92) + '.')}{'[.].+' if kind.per else ''}$" for kind in TOPIC_KINDS]


class SinkConsumer:
    """Runs on the thread that calls `run`, until `stop` is set."""

    def __init__(
        self,
        settings: SinkSettings,
        store: Store,
        letters: SinkLetters,
        metrics: SinkMetrics,
        cluster_id: str,
        stop: threading.Event,
        on_assigned: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._store = store
        self._letters = letters
        self._metrics = metrics
        self._stop = stop
        self._on_assigned = on_assigned
        self._log_ids = LogIds(settings.profile, cluster_id)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._batch = Batch(Marks(), settings.profile.codec)
        self._inserted: set[str] = set()  # tables that have this batch already
        self._ingested_on = 0
        self._committed: dict[Partition, int] = {}  # since the partitions were given
        self._began_at: float | None = None  # when the batch took its first record
        self._backoff = Backoff(settings.first_retry_seconds, settings.max_retry_seconds)
        self._member = GroupMember(
            settings.profile,
            {
                **settings.profile.consumer("headrace-sink", group_id=settings.group),
                "partition.assignment.strategy": "range",
                "topic.metadata.refresh.interval.ms": int(settings.topics_seconds * 1000),
            },
        )

    def run(self) -> None:
        """Raises LogUnreachable when the client is beyond repair, ClickHouseUnusable, and whatever is a defect."""
        self._member.subscribe(
            topic_patterns(), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )  # fmt: skip
        try:
            while not self._stop.is_set():
                self._step()
        finally:
            self._member.leave()  # calls _revoked

    @property
    def _consumer(self) -> Consumer:
        return self._member.consumer

    def _step(self) -> None:
        # One by one, not `consume`: a batch of it could span a rebalance and hold records of the time before.
        timeout_s = self._patience()
        for _ in range(_POLL_RECORDS):
            if (message := self._consumer.poll(timeout_s)) is None:
                break
            self._take(message)
            timeout_s = 0.0
        now = monotonic()
        if self._backoff.failures:
            if self._backoff.seconds_left(now) == 0 and self._flush():
                self._consumer.resume(self._consumer.assignment())
        elif self._is_due(now) and not self._flush():
            self._consumer.pause(self._consumer.assignment())

    def _patience(self) -> float:
        """How long a poll may wait: until the batch is due."""
        if self._began_at is None or self._backoff.failures:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, max(0.0, self._began_at + self._settings.batch_seconds - monotonic()))

    def _is_due(self, now: float) -> bool:
        if self._began_at is None:
            return False
        return (
            len(self._batch) >= self._settings.batch_rows
            or self._batch.size_bytes >= self._settings.batch_bytes
            or now - self._began_at >= self._settings.batch_seconds
        )

    def _take(self, message: KafkaMessage) -> None:
        if (error := message.error()) is not None:
            if error.fatal():
                raise LogUnreachable(error.str())
            if error.code() not in _NO_NEWS:
                log.warning("the broker says: %s", error.str())
            return
        partition = self._partitions.get((message.topic() or "", message.partition() or 0))
        if partition is None:  # a record of a partition that was just taken away
            return
        value = message.value()
        unreadable = self._batch.add(
            partition,
            message.offset() or 0,
            value.encode() if isinstance(value, str) else value or b"",
            message.timestamp()[1],
        )
        if unreadable is not None:
            self._metrics.unreadable(partition.topic, unreadable)
            if is_the_sinks(partition.topic):
                self._letters.put(Record.of(message, self._settings.profile.codec), unreadable)
        if self._began_at is None:
            self._began_at = monotonic()

    def _flush(self) -> bool:
        """Insert and commit the batch; False if ClickHouse did not take it (it is kept, and the wait is noted)."""
        batch = self._batch
        began_at = monotonic()
        self._ingested_on = self._ingested_on or now_us() // _DAY_US
        try:
            if not self._letters.settle(self._settings.letters_seconds):
                raise LettersWait("the log did not acknowledge its dead letters")
            for rows in batch.tables:
                if rows.table not in self._inserted:
                    self._store.insert(rows, ingested_on=self._ingested_on)
                    self._inserted.add(rows.table)
                    self._metrics.rows.labels(rows.table).inc(len(rows))
        except (ClickHouseUnavailable, LettersWait) as error:
            self._metrics.failed_flushes.inc()
            self._metrics.waiting_rows.set(len(batch))
            delay = self._backoff.failed(monotonic())
            log.warning("%d rows wait, the next attempt is in %.1f s: %s", len(batch), delay, error)
            return False
        if self._backoff.worked():
            log.info("rows are taken again")
        self._commit(batch)
        self._measure(batch, began_at)
        if batch.undecodable:
            log.warning("%d records could not be decoded; they are in headrace.events as they are", batch.undecodable)
        self._begin(batch.marks)
        return True

    def _begin(self, marks: Marks) -> None:
        self._batch, self._began_at = Batch(marks, self._settings.profile.codec), None
        self._inserted, self._ingested_on = set(), 0

    def _commit(self, batch: Batch) -> None:
        offsets = [TopicPartition(p.topic, p.number, offset) for p, offset in batch.next_offsets.items()]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            log.warning("offsets were not committed, the records will be read again: %s", error.args[0].str())

    def _measure(self, batch: Batch, began_at: float) -> None:
        self._metrics.insert_seconds.observe(monotonic() - began_at)
        self._metrics.waiting_rows.set(0)
        self._committed |= batch.next_offsets
        behind = 0
        for partition, offset in self._committed.items():
            at = TopicPartition(partition.topic, partition.number)
            _, end = self._consumer.get_watermark_offsets(at, cached=True)  # as the newest fetch told it
            behind += max(0, end - offset)
        self._metrics.lag.set(behind)

    def _assigned(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        self._partitions = {}
        if given and (starts := self._until_it_works(lambda: self._starts(given))) is not None:
            consumer.assign(starts)
        else:
            consumer.assign([])
        self._on_assigned()

    def _starts(self, given: list[TopicPartition]) -> list[TopicPartition]:
        log_ids = self._log_ids.of(tp.topic for tp in given)
        names = {(tp.topic, tp.partition): Partition(log_ids[tp.topic], tp.topic, tp.partition) for tp in given}
        marks = self._store.marks(names.values())
        committed = self._consumer.committed(given, timeout=_COMMITTED_TIMEOUT_S)
        starts = [
            TopicPartition(
                tp.topic, tp.partition,
                marks.start(names[tp.topic, tp.partition], tp.offset if tp.offset >= 0 else None),
            )
            for tp in committed
        ]  # fmt: skip
        self._partitions = names
        self._begin(marks)
        return starts

    def _until_it_works(self, attempt: Callable[[], T]) -> T | None:
        """Its answer, or None if we are told to stop before there is one."""
        waits = Backoff(self._settings.first_retry_seconds, self._settings.max_retry_seconds)
        while not self._stop.is_set():
            try:
                return attempt()
            except (ClickHouseUnavailable, KafkaException) as error:
                delay = waits.failed(monotonic())
                log.warning("partitions wait for ClickHouse and the broker, next attempt in %.1f s: %s", delay, error)
                self._stop.wait(delay)
        return None

    def _revoked(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        if not self._batch.is_empty and not self._flush():
            log.warning("%d rows are left to the next owner of their partitions", len(self._batch))
        self._forget(consumer)

    def _lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        log.warning("the group went on without this sink; %d rows are left to the next owner", len(self._batch))
        self._forget(consumer)

    def _forget(self, consumer: Consumer) -> None:
        self._backoff.worked()
        self._partitions = {}
        self._committed = {}
        self._letters.forget()
        self._begin(Marks())
        consumer.unassign()
