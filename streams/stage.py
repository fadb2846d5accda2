"""One stage: takes records from its topics, has each processed, and commits what is done. The shell around a core.

At least once: a partition is committed up to its first record whose outputs are not all acknowledged by the broker.
Within one process each record is processed once, whatever Faust reads again after a rebalance.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from faust.types import EventT

from eventlog.clock import monotonic, now_us
from eventlog.errors import DeliveryFailed
from eventlog.producer import EventProducer
from eventlog.record import Record
from schemas.codec import Codec
from schemas.errors import ContractError
from streams.app import StreamsApp
from streams.commit_watch import CommitWatch
from streams.errors import StageFailed
from streams.metrics import StreamsMetrics
from streams.outbox import Outbox, Pending
from streams.progress import Position, Progress
from streams.settings import StreamsSettings

_LOG = logging.getLogger(__name__)
_FLUSH_TIMEOUT_S = 1.0


class Stage:
    """Base of both stages. A subclass says what a record leads to (`process`).

    Whoever runs it waits for `failure`: no stage ends silently.
    """

    name: ClassVar[str]

    def __init__(self, settings: StreamsSettings, metrics: StreamsMetrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.progress = Progress()
        self.app = StreamsApp(settings, self.name, self.progress)
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commits = CommitWatch(self.name, settings.uncommitted_after_s)
        self._producer = EventProducer(settings.profile, client_id=f"{settings.group}-{self.name}")
        self.outbox = Outbox(self._producer, max_in_flight=settings.max_in_flight, on_failure=self._on_delivery_failed)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._decision_seconds = metrics.decision_seconds.labels(self.name)

    async def process(self, record: Record, pending: Pending) -> None:
        """Decide one record and send what follows from it.

        Raises ContractError for a record that must go to the dead letters; anything else ends the process.
        """
        raise NotImplementedError

    async def start(self) -> None:
        """Start the app; topics that are followed already are subscribed with it."""
        await self.app.start()
        self._watcher = asyncio.create_task(self._watch_app(), name=f"{self.name}-app")

    def follow(self, topic: str) -> None:
        """Read this topic from its beginning, or from what is committed. Twice is as once."""
        if topic in self._tasks:
            return
        source: Any = self.app.stream(self.app.topic(topic, key_type=bytes, value_type=bytes))
        task = asyncio.create_task(self._take_all(source.noack()), name=f"{self.name}-{topic}")
        task.add_done_callback(self._on_task_done)
        self._tasks[topic] = task

    async def stop(self) -> None:
        """Take nothing more, wait for acknowledgements (a second at most), commit, leave the group."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            try:
                async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                    await self.outbox.flush()
                    await self.app.consumer.commit()
            except TimeoutError:
                _LOG.warning("%s: stopped with %d outputs unacknowledged", self.name, self.outbox.in_flight)
            await self.app.stop()
        await asyncio.to_thread(self._producer.close, _FLUSH_TIMEOUT_S)

    def fail(self, error: BaseException) -> None:
        """End the process with this reason; only the first counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def lag(self) -> dict[Position, int]:
        """Records in the log behind the last one taken, for each partition that is read and whose end is known.

        A producer's transactions end with records that nobody is given; what Faust's consumer has passed is not behind.
        """
        found: dict[Position, int] = {}
        if not self.app.started or self.app.rebalancing:
            return found
        consumer = self.app.consumer
        for tp in consumer.assignment():
            end = consumer.highwater(tp) if tp.topic in self._tasks else None
            if end is not None:
                position = (tp.topic, tp.partition)
                passed = self.app.has_passed(tp, end)
                found[position] = 0 if passed else max(0, end - self.progress.next_offset(position))
        return found

    def watch_commits(self, now_s: float) -> None:
        """Raises CommitStuck; to be called every second or so."""
        if not self.app.started or self.app.rebalancing:
            return
        self._commits.look(self.app.done(), self.app.committed, now_s=now_s)

    async def _take_all(self, stream: Any) -> None:
        async for event in stream.events():
            await self.outbox.room()
            await self._take(event)

    async def _take(self, event: EventT[Any]) -> None:
        message = event.message
        position: Position = (message.topic, message.partition)
        offset = message.offset
        if not self.progress.take(position, offset):
            return
        started = monotonic()
        record = _record_of(event, self.settings.profile.codec)
        pending = Pending(lambda: self._on_delivered(position, offset), record.traceparent)
        try:
            await self.process(record, pending)
        except ContractError as error:
            await self._dead_letter(record, pending, error)
        self.outbox.complete(pending)
        self._decision_seconds.observe(monotonic() - started)

    async def _dead_letter(self, record: Record, pending: Pending, error: ContractError) -> None:
        self.count("dead_lettered")
        self.metrics.dead_letters.labels(self.name, error.code).inc()
        _LOG.warning("%s: dead letter from %s: %s", self.name, record.place, error)

        def refused(failure: DeliveryFailed) -> None:
            self.metrics.dead_letters_lost.labels(self.name, error.code).inc()
            _LOG.error("%s: %s can't even be a dead letter: %s", self.name, record.place, failure)

        await self.outbox.send_dead_letter(
            pending, record, error, consumer=f"streams.{self.name}", now_us=now_us(), refused=refused
        )

    def count(self, outcome: str) -> None:
        """One more record with this outcome (metrics.py lists them)."""
        self.metrics.records.labels(self.name, outcome).inc()

    def _on_delivered(self, position: Position, offset: int) -> None:
        self.progress.done(position, offset)

    def _on_delivery_failed(self, failure: DeliveryFailed) -> None:
        self.fail(StageFailed(f"{self.name}: an output was not acknowledged: {failure}"))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        reason = "its stream ended" if error is None else f"{type(error).__name__}: {error}"
        failed = StageFailed(f"{task.get_name()} stopped: {reason}")
        failed.__cause__ = error
        self.fail(failed)

    async def _watch_app(self) -> None:
        """Faust restarts what crashes inside it, or goes on without: here a crash ends the process."""
        await self.app.wait_until_stopped()
        self.fail(StageFailed(f"{self.name}: Faust stopped: {self.app.crash_reason or 'no reason given'!r}"))


def _record_of(event: EventT[Any], codec: Codec) -> Record:
    message = event.message
    headers: Any = message.headers or []
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=int((message.timestamp or 0) * 1000),
        key=message.key,
        value=message.value or b"",
        headers=[(name, value or b"") for name, value in (headers.items() if isinstance(headers, dict) else headers)],
        codec=codec,
    )
