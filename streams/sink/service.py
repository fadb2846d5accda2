"""The sink as a part: bring the tables up to date, serve chDB to readers, run the consumer, stop clean."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from prometheus_client import start_http_server

from eventlog.admin import LogAdmin
from eventlog.clock import monotonic
from eventlog.producer import EventProducer
from schemas.topics import Topics
from streams.sink.clickhouse import EmbeddedClickHouse
from streams.sink.consumer import SinkConsumer
from streams.sink.errors import ClickHouseUnavailable
from streams.sink.letters import SinkLetters
from streams.sink.metrics import SinkMetrics
from streams.sink.retry import Backoff
from streams.sink.settings import SinkSettings
from streams.sink.store import Store

log = logging.getLogger("headrace.sink")

_LETTERS_CLOSE_S = 0.5  # those of a batch that is committed are acknowledged; what else there is, is written again


async def run(settings: SinkSettings, *, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Run until `stop`; what was read is in ClickHouse and committed when it returns, if ClickHouse takes it.

    `ready` is called when the tables are there, readers are served and partitions are assigned; or at once while a
    server does not answer: then the sink waits for it, Kafka holds, and nothing else has to stop.
    Raises ClickHouseUnusable, MigrationError and LogUnreachable.
    """
    # What its clients would write beside our own lines: a traceback and two warnings for each attempt.
    for name in ("clickhouse_connect", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ready = _once(ready)
    metrics = SinkMetrics()
    with Store(settings.clickhouse) as store, _metrics_served(settings, metrics):
        await _migrate(settings, store, stop, ready)
        if stop.is_set():
            return
        async with _readers(settings):
            await _consume(settings, store, metrics, stop, ready)


async def _migrate(settings: SinkSettings, store: Store, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    waits = Backoff(settings.first_retry_seconds, settings.max_retry_seconds)
    while not stop.is_set():
        try:
            applied = await asyncio.to_thread(store.migrate, settings.migrations)
        except ClickHouseUnavailable as error:
            delay = waits.failed(monotonic())
            log.warning("the sink waits for ClickHouse, next attempt in %.1f s: %s", delay, error)
            ready()
            await _sleep_until(stop, delay)
        else:
            log.info("%s is up to date (%s)", settings.clickhouse, ", ".join(applied) or "nothing to apply")
            return


async def _consume(
    settings: SinkSettings, store: Store, metrics: SinkMetrics, stop: asyncio.Event, ready: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    halt = threading.Event()

    def work() -> None:
        with LogAdmin(settings.profile, Topics()) as admin:
            cluster_id = admin.cluster_id()
        producer = EventProducer(settings.profile, client_id="headrace-sink")
        letters, joined = SinkLetters(producer, metrics), partial(loop.call_soon_threadsafe, ready)
        try:
            SinkConsumer(settings, store, letters, metrics, cluster_id, halt, joined).run()
        finally:
            producer.close(_LETTERS_CLOSE_S)

    working = asyncio.create_task(asyncio.to_thread(work))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        halt.set()
        stopping.cancel()
        await working


@contextmanager
def _metrics_served(settings: SinkSettings, metrics: SinkMetrics) -> Iterator[None]:
    if settings.metrics_port is None:
        yield
        return
    server, _ = start_http_server(settings.metrics_port, "127.0.0.1", metrics.registry)
    log.info("metrics at http://127.0.0.1:%d/metrics", server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@asynccontextmanager
async def _readers(settings: SinkSettings) -> AsyncIterator[None]:
    if settings.read_interface is None or not isinstance(settings.clickhouse, EmbeddedClickHouse):
        yield
        return
    async with settings.read_interface(settings.clickhouse):
        yield


async def _sleep_until(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def _once(call: Callable[[], None]) -> Callable[[], None]:
    called = False

    def call_first_time() -> None:
        nonlocal called
        if not called:
            called = True
            call()

    return call_first_time
