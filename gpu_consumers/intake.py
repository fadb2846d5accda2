"""Takes work from the log: one thread that polls, and never waits for the engine.

It owns the group's consumer and everything about partitions:

* It subscribes to the work topics of all tenants, and again when the registry tells of a new one.
* A partition with enough unfinished records is paused, and goes on when few are left. Cancels get through to it all
  the same: lookahead finds them, and what it finds for requests that did not come yet is remembered until they do.
* Offsets are committed behind finished work only, as a contiguous watermark.
* When a partition is revoked, what is finished is committed, and the rest is dropped without a word: the next owner
  reads it again, and goes on with it by its token log.

Orders that were written before their partition came to us go through recovery; fresh ones go straight to the engine.
Where the one ends and the other begins is told by the first answer of the broker for that partition: an empty one, or
one with records, which carries the end of the log.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from eventlog.clock import monotonic, now_us
from eventlog.errors import LogUnreachable
from eventlog.group import GroupMember
from eventlog.producer import EventProducer
from eventlog.reader import Position
from eventlog.record import Record
from eventlog.registry import Registry
from gpu_consumers.dead_letter_box import DeadLetterBox
from gpu_consumers.lookahead import Lookahead
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.partition import HeldPartition
from gpu_consumers.recovery import Recovery
from gpu_consumers.settings import WorkerSettings
from gpu_consumers.work import Cancel, Drop, Message, Work, understand
from schemas.errors import ContractError
from schemas.events import RequestCancelled, RequestRouted
from schemas.topics import work_topic

POLL_SECONDS = 0.05
_BATCH_RECORDS = 64
_COMMIT_SECONDS = 0.1
_REMEMBERED_REQUESTS = 10_000

log = logging.getLogger("headrace.worker.intake")


class Intake:
    """`run` until `stop`; the caller provides the thread. What other threads may call stands first."""

    def __init__(
        self,
        settings: WorkerSettings,
        producer: EventProducer,
        metrics: WorkerMetrics,
        *,
        inbox: SimpleQueue[Message],
        stop: threading.Event,
        joined: Callable[[], None],
    ) -> None:
        """`joined` is called whenever the group has given partitions, or there is no tenant to have any."""
        self._settings = settings
        self._joined = joined
        self._metrics = metrics
        self._inbox = inbox
        self._stop = stop
        self._recovery = Recovery(
            settings.profile, client_id=settings.worker_id, hand_on=inbox.put,
            unreadable=partial(metrics.unreadable, "recovery"),
        )  # fmt: skip
        self._member = GroupMember(
            settings.profile,
            {
                **settings.profile.consumer(settings.worker_id, group_id=f"gpu.{settings.deployment}"),
                # A new tenant or a new worker must not take the other partitions' running requests away.
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.partition.eof": True,
                "on_commit": self._committed,
            },
        )
        self._lookahead = Lookahead(
            settings.profile, client_id=settings.worker_id, unreadable=partial(metrics.unreadable, "lookahead")
        )
        self._letters = DeadLetterBox(
            producer, metrics, consumer=f"gpu.{settings.deployment}", settled=self._record_done
        )
        self._wanted_topics: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._partitions: dict[Position, HeldPartition] = {}
        self._open: dict[str, Work] = {}  # by request id
        self._finished: dict[str, None] = {}  # the newest of those that were open, oldest first
        self._settled: deque[tuple[HeldPartition, int, str | None]] = deque()  # by other threads
        self._commit_at = 0.0
        self._leaving = False

    # What other threads call.

    def registry_changed(self, registry: Registry) -> None:
        self._wanted_topics = frozenset(work_topic(self._settings.deployment, tenant) for tenant in registry.tenants)

    def done(self, work: Work) -> None:
        """All of this work is acknowledged by the log."""
        self._settled.append((work.partition, work.offset, work.order.request_id))

    def take_nothing_more(self) -> None:
        """Every partition is paused from now on, and those that come are. They are left with the group, at `stop`."""
        self._leaving = True

    def _record_done(self, partition: HeldPartition, offset: int) -> None:
        self._settled.append((partition, offset, None))

    # The thread.

    def run(self) -> None:
        """Returns when it is told to stop, and has left the group by then. Raises LogUnreachable on fatal errors."""
        self._recovery.start()
        try:
            while not self._stop.is_set():
                self._subscribe()
                self._poll()
                self._look_ahead()
                self._settle()
                self._letters.send()
                self._pause_and_resume()
                self._commit_if_due()
                self._recovery.check()
        finally:
            self._recovery.close()
            self._member.leave()  # revokes, so commits what is finished
            self._lookahead.close()

    @property
    def _consumer(self) -> Consumer:
        return self._member.consumer

    def _subscribe(self) -> None:
        wanted = self._wanted_topics
        if not wanted:
            self._joined()
        if wanted != self._subscribed:
            self._member.subscribe(
                sorted(wanted), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            self._subscribed = wanted

    def _poll(self) -> None:
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return
        for message in [first, *self._consumer.consume(_BATCH_RECORDS - 1, 0)]:
            self._take(message)

    def _take(self, message: KafkaMessage) -> None:
        partition = self._partitions.get((message.topic() or "", message.partition() or 0))
        error = message.error()
        if error is not None:
            if error.fatal():
                raise LogUnreachable(f"the work topics can't be read: {error.str()}")
            if error.code() == KafkaError._PARTITION_EOF and partition is not None and partition.fresh_from is None:
                partition.fresh_from = message.offset()
            return
        record = Record.of(message, self._settings.profile.codec)
        if partition is None or not partition.take(record.offset):
            return
        if partition.fresh_from is None:
            partition.fresh_from = self._end_of(record)
        try:
            event = understand(
                record, deployment=self._settings.deployment, token_partitions=self._settings.topics.tokens
            )
        except ContractError as problem:
            self._letters.put(partition, record, problem)
            return
        if isinstance(event, RequestRouted):
            self._take_order(event, partition, record)
        else:
            self._take_cancel(event, partition, record.offset)

    def _end_of(self, record: Record) -> int:
        """End of the partition's log as the fetch that brought this record told it."""
        at = TopicPartition(record.topic, record.partition)
        _, end = self._consumer.get_watermark_offsets(at, cached=True)
        return max(end, record.offset + 1)

    def _take_order(self, order: RequestRouted, partition: HeldPartition, record: Record) -> None:
        if order.request_id in self._open or order.request_id in self._finished:
            # The router may repeat itself. As long as the first order is open the watermark stays before both.
            partition.tracker.done(record.offset)
            return
        work = Work(order, partition, record.offset, record.timestamp_ms, now_us(), record.traceparent)
        work.cancelled = order.request_id in partition.cancelled_ahead
        self._open[order.request_id] = work
        if partition.may_have_begun(record.offset):
            self._metrics.recovered.inc()
            self._recovery.submit(work)
        else:
            self._inbox.put(work)

    def _take_cancel(self, event: RequestCancelled, partition: HeldPartition, offset: int) -> None:
        """Done at once: as long as its order is open the watermark stays before both, and after that it is moot."""
        partition.cancelled_ahead.discard(event.request_id)
        partition.tracker.done(offset)
        self._cancel(event.request_id)

    def _cancel(self, request_id: str) -> bool:
        work = self._open.get(request_id)
        if work is not None and not work.cancelled:
            work.cancelled = True
            self._inbox.put(Cancel(work))
        return work is not None

    # Pausing, and what goes past a pause.

    def _pause_and_resume(self) -> None:
        marks = self._settings.marks
        for position, partition in self._partitions.items():
            if partition.should_pause(marks) or (self._leaving and not partition.paused):
                partition.paused = True
                self._consumer.pause([TopicPartition(*position)])
                self._lookahead.begin(partition)
            elif partition.should_resume(marks) and not self._leaving:
                partition.paused = False
                self._lookahead.end(partition)
                self._consumer.resume([TopicPartition(*position)])
        self._metrics.paused_partitions.set(sum(partition.paused for partition in self._partitions.values()))
        self._metrics.open_records.set(sum(p.tracker.open_count for p in self._partitions.values()))

    def _look_ahead(self) -> None:
        for partition, event in self._lookahead.cancels():
            if not self._cancel(event.request_id):
                partition.cancelled_ahead.add(event.request_id)

    # Finished work and offsets.

    def _settle(self) -> None:
        while self._settled:
            partition, offset, request_id = self._settled.popleft()
            if not partition.held:
                continue
            partition.tracker.done(offset)
            if request_id is not None and self._open.pop(request_id, None) is not None:
                self._remember(request_id)

    def _remember(self, request_id: str) -> None:
        self._finished[request_id] = None
        if len(self._finished) > _REMEMBERED_REQUESTS:
            del self._finished[next(iter(self._finished))]

    def _commit_if_due(self) -> None:
        if monotonic() < self._commit_at:
            return
        self._commit_at = monotonic() + _COMMIT_SECONDS
        offsets = [
            TopicPartition(*position, offset)
            for position, partition in self._partitions.items()
            if (offset := partition.tracker.to_commit()) is not None
        ]
        if offsets:
            self._commit(offsets, wait=False)

    def _commit(self, offsets: list[TopicPartition], *, wait: bool) -> None:
        """A last commit that fails is no harm: what it covers is read again, and found to be finished."""
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets)
        except KafkaException as error:
            self._committed(error.args[0], offsets)

    def _committed(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Called within poll. Without a second try, a worker with nothing more to do would never commit its last."""
        for at in offsets:
            partition = self._partitions.get((at.topic, at.partition))
            if partition is not None and (at.error or error) is not None:
                log.info("%s/%s: offset %s was not committed: %s", at.topic, at.partition, at.offset, at.error or error)
                partition.tracker.commit_failed()

    # The group. Called within poll and close, on this thread.

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            self._partitions[at.topic, at.partition] = HeldPartition(at.topic, at.partition)
        self._metrics.partitions.set(len(self._partitions))
        self._joined()

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._settle()
        offsets = [
            TopicPartition(at.topic, at.partition, watermark)
            for at in partitions
            if (held := self._partitions.get((at.topic, at.partition))) is not None
            and (watermark := held.tracker.watermark) is not None
        ]
        if offsets:
            self._commit(offsets, wait=True)
        self._give_up(partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already: nothing can be committed."""
        log.warning("lost %d partitions: the broker took this worker for dead", len(partitions))
        self._give_up(partitions)

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        gone = {(at.topic, at.partition) for at in partitions}
        for position in gone:
            partition = self._partitions.pop(position, None)
            if partition is None:
                continue
            partition.held = False
            self._lookahead.end(partition)
            if partition.paused:  # or it would still be so when it comes back
                with suppress(KafkaException):  # it is no longer the consumer's to resume
                    self._consumer.resume([TopicPartition(*position)])
        for work in [work for work in self._open.values() if not work.partition.held]:
            del self._open[work.order.request_id]
            self._inbox.put(Drop(work))
        self._metrics.partitions.set(len(self._partitions))
