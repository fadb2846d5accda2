"""Faust, set up for us. Each surprise here was found by running Faust 0.15.3 against both brokers.

Two apps (consumer groups) instead of one: Faust rebalances a whole app when it begins to read another topic, and a new
tenant is another topic for `validate`. `decide`, whose table would be recovered with each rebalance, always reads the
same topic and so is never disturbed by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import faust
from aiokafka import AIOKafkaConsumer
from faust.tables.manager import TableManager
from faust.transport.conductor import Conductor
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP
from mode.threads import ServiceThread, WorkerThread

from streams import lenient_records
from streams.credentials import credentials_of
from streams.progress import Position, Progress
from streams.settings import StreamsSettings

# A waiting fetch leaves out partitions whose last records are not taken yet, and no other fetch goes to that broker
# meanwhile: new records there wait for it to end. So fetches may not wait long, on Apache Kafka either.
_FETCH_WAIT_MS = {"kafka": 20, "embedded": 5}
# aiokafka's own pause before it fetches past records that are not taken: 100 ms of latency under load.
_PREFETCH_BACKOFF_S = 0.001
# What was decided since the last commit is said again after a crash: short, because a commit costs little.
_COMMIT_INTERVAL_S = 0.25
_HIGHWATER_TIMEOUT_S = 10.0


class _DaemonThread(WorkerThread):
    """Faust's consumer thread must not keep a process alive whose stage has failed while it was being set up."""

    def __init__(self, service: ServiceThread, **settings: Any) -> None:
        super().__init__(service, **settings)
        self.daemon = True


class _ConsumerThread(AIOKafkaConsumerThread):
    """aiokafka's consumer with short fetches."""

    app: StreamsApp
    Worker = _DaemonThread

    def _create_worker_consumer(self, transport: Transport) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust hard-codes 1500 and offers no setting; aiokafka reads it when the consumer starts.
        consumer._fetch_max_wait_ms = _FETCH_WAIT_MS[self.app.settings.profile.kind]
        return consumer

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Faust also takes for committed what the broker refused."""
        did_commit = bool(await super()._commit(offsets))
        if did_commit:
            self.app.has_committed(offsets)
        return did_commit

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """With each assignment."""
        found: Mapping[TP, int | None] = await super().seek_to_committed()
        self.app.committed.update({(tp.topic, tp.partition): offset or 0 for tp, offset in found.items()})
        return cast(Mapping[TP, int], found)

    async def on_start(self) -> None:
        await super().on_start()
        self._ensure_consumer()._fetcher._prefetch_backoff = _PREFETCH_BACKOFF_S

    def highwater(self, tp: TP) -> int:
        """End of a partition for Faust's monitor, asked with each record: also with those that a fetch had brought
        when a rebalance took their partition away. aiokafka asserts then, and Faust would end over a statistic.

        The record itself does no harm: whoever has the partition now decides it again, and decisions are idempotent.
        """
        try:
            return int(super().highwater(tp) or 0)
        except AssertionError:
            return 0

    async def _highwaters(self, partitions: list[TP]) -> Mapping[TP, int]:
        """Ends of changelogs, to which recovery reads.

        The embedded broker's ListOffsets answers the base of the last batch plus one, which would leave the newest
        entries unread. What a fetch says is right, and every assigned partition is fetched soon after the assignment.
        """
        ends: Mapping[TP, int] = await super()._highwaters(partitions)
        if self.app.settings.profile.kind == "kafka":
            return ends
        consumer = self._ensure_consumer()
        async with asyncio.timeout(_HIGHWATER_TIMEOUT_S):
            while any(consumer.highwater(tp) is None for tp in ends):
                await self.sleep(0.01)
        return {tp: consumer.highwater(tp) for tp in ends}


class _ReadOffsets(dict[TP, int | None]):
    """Faust drops records before the newest that it has read, and its note of that can be older than its last seek:
    what it was told to read again would never come. Here it finds none; records that were taken before are known.
    """

    def __getitem__(self, tp: TP) -> None:
        return None


class _Consumer(Consumer):
    """Commits what the stage has done, not what Faust has counted.

    Faust's own count of acknowledgements goes wrong in a rebalance under load. It acknowledges records that it skips,
    forgets those that were in a commit that was refused, and so comes to commit past records that nobody has done, or
    waits for ever behind a gap.
    """

    app: StreamsApp

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset = _ReadOffsets()

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        return self.app.committable()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await super().on_partitions_revoked(revoked)  # commits once more
        self.app.has_lost(revoked)

    async def _wait_next_records(self, timeout: float) -> Any:  # noqa: ASYNC109 - Faust's signature
        # While no partition is active (a rebalance), Faust sleeps a whole second: most of a new tenant's wait.
        if self.flow_active and not self._get_active_partitions():
            await self.sleep(0.02)
            return {}, set()
        return await super()._wait_next_records(timeout)

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(Transport):
    Consumer = _Consumer


class _TableManager(TableManager):
    async def on_start(self) -> None:
        """Without the second that Faust gives modules to register their tables: ours are there."""
        await self._update_channels()
        await self.recovery.start()


class QuotaTable(faust.Table[Any, Any]):
    """A table whose changelog we write: the decide stage sends each change with the decision's other outputs.

    Faust would write it through its own producer, at less than half the speed, and would not tell when it is
    acknowledged; so committed offsets could be ahead of it. Recovery from the changelog is Faust's.
    """

    def on_key_set(self, key: Any, value: Any) -> None:
        """Nothing: see the class."""

    def on_key_del(self, key: Any) -> None:
        """Nothing: see the class."""


class StreamsApp(faust.App):
    """One stage's app. Started inside a running loop: `await app.start()`, `await app.stop()`.

    committed: offsets that the broker has, as it said itself, of the partitions that are read; 0 for none.
    """

    def __init__(self, settings: StreamsSettings, stage: str, progress: Progress) -> None:
        """progress: the stage's."""
        self.settings = settings
        self._progress = progress
        self.committed: dict[Position, int] = {}
        profile = settings.profile
        lenient_records.install()
        super().__init__(
            f"{settings.group}-{stage}",
            broker=";".join(f"kafka://{server}" for server in profile.bootstrap_servers.split(",")),
            broker_credentials=credentials_of(profile.security),
            store="memory://",
            datadir=settings.data_dir / "faust",
            key_serializer="raw",
            value_serializer="raw",
            web_enabled=False,
            topic_disable_leader=True,
            autodiscover=False,
            # A request written before its tenant's topic was subscribed must be read.
            consumer_auto_offset_reset="earliest",
            consumer_metadata_max_age_ms=10_000,
            broker_session_timeout=profile.session_timeout_ms / 1000,
            broker_heartbeat_interval=profile.heartbeat_interval_ms / 1000,
            broker_rebalance_timeout=10.0,
            broker_request_timeout=20.0,
            broker_commit_interval=_COMMIT_INTERVAL_S,
            stream_recovery_delay=0.0,
            # We stop by flushing and committing ourselves (stage.py); waiting for Faust's own count can hang.
            stream_wait_empty=False,
            # It would compare persisted offsets, which an in-memory table has none of, with the end of the log.
            recovery_consistency_check=False,
            Table=QuotaTable,
            TableManager=_TableManager,
        )
        # How long topics are gathered before the one rebalance for all of them; 45 s by default.
        cast(Conductor, self.topics)._resubscribe_sleep_lock_seconds = 0.1

    def _new_transport(self) -> _Transport:
        return _Transport(self.conf.broker_consumer, self)

    def done(self) -> dict[Position, int]:
        """Of each partition that is read: the offset below which all is done, if anything was."""
        return {at: offset for at, offset in self._progress.watermarks().items() if at in self.committed}

    def committable(self) -> dict[TP, int]:
        """What is done and not committed."""
        return {TP(*at): offset for at, offset in self.done().items() if offset > self.committed[at]}

    def has_committed(self, offsets: Mapping[TP, int]) -> None:
        """The broker has taken these. On the consumer's thread."""
        for tp, offset in offsets.items():
            if (tp.topic, tp.partition) in self.committed:  # else it went away meanwhile
                self.committed[tp.topic, tp.partition] = offset

    def has_lost(self, revoked: set[TP]) -> None:
        """Until they are assigned again, and it is known how far others have committed them."""
        for tp in revoked:
            self.committed.pop((tp.topic, tp.partition), None)

    def has_passed(self, tp: TP, end: int) -> bool:
        """Faust's consumer stands at this offset of an assigned partition or behind it."""
        consumer = cast(_Consumer, self.consumer)._thread._ensure_consumer()
        position = consumer._subscription.subscription.assignment.state_value(tp)._position
        return position is not None and position >= end

    def quota_table(self) -> Any:
        """The table of the decide stage, with one changelog partition for each partition of `validated`."""
        return self.Table("quota", partitions=self.settings.topics.validated, key_type=bytes, value_type=bytes)
