"""The sink against the least that such a job can do: rows a second from a topic into ClickHouse's tables.

The baseline has the same records in memory, decodes them, puts their fields into columns and inserts these in batches
of the same size: no broker, no offsets, no marks, no JSON, no deduplication. Ours reads them from the broker, through a
consumer group, with all that makes it exactly once. Three rounds, each into a new database, in turn; medians.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from clickhouse_connect.driver.client import Client

from eventlog.admin import LogAdmin
from eventlog.errors import LogBusy
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from infra.clickhouse.schema import load_migrations
from schemas.codec import decode, encode
from schemas.events import GenerationStarted, TenantRegistered, TokensGenerated
from schemas.topics import Topics, tokens_topic
from streams.sink.clickhouse import DATABASE, EmbeddedClickHouse, open_client
from streams.sink.consumer import SinkConsumer
from streams.sink.letters import SinkLetters
from streams.sink.metrics import SinkMetrics
from streams.sink.rows import EventRows, Rows, TokenRows
from streams.sink.settings import SinkSettings
from streams.sink.store import Store
from tests.benchmarks.row import BenchRow
from tests.brokers import running_broker
from tests.request_story import Story

ROUNDS: Final = 3
RECORDS: Final = 100_000
PARTITIONS: Final = 4
BAR: Final = 0.6
_TENANT = "bench"
_BATCH_ROWS = 20_000  # the sink's own


def run() -> list[BenchRow]:
    values = _values()
    ours, baseline = [], []
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder)) as broker:
        profile = broker.profile
        _fill(profile, values)
        for number in range(ROUNDS):
            ours.append(RECORDS / _sink_seconds(profile, Path(folder) / f"ours-{number}", f"sink-{number}"))
            baseline.append(RECORDS / _bare_seconds(values, Path(folder) / f"bare-{number}"))
    return [
        BenchRow(
            name="sink_throughput", ours=statistics.median(ours), baseline=statistics.median(baseline), unit="rows/s",
            bar=BAR,
        )
    ]  # fmt: skip


def _values() -> list[bytes]:
    """Nine of ten are tokens, as in the topic of a busy tenant."""
    story = Story(tenant=_TENANT)
    other = encode(story.started()[1])
    return [
        encode(story.tokens(at=number, index=number % 512)[1]) if number % 10 else other for number in range(RECORDS)
    ]


def _fill(profile: BrokerProfile, values: list[bytes]) -> None:
    with (
        LogAdmin(profile, Topics(tokens=PARTITIONS)) as admin,
        EventProducer(profile, client_id="bench", linger_ms=20) as producer,
    ):
        admin.create_shared_topics()
        tenant = TenantRegistered(
            tenant=_TENANT, at_us=1, requests_per_minute=1, tokens_per_minute=1, max_concurrent_requests=1
        )
        admin.register_tenant(tenant, Registry())
        for number, value in enumerate(values):
            _send(producer, value, number % PARTITIONS)


def _send(producer: EventProducer, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.send_bytes(tokens_topic(_TENANT), value, key=b"k", headers=[], partition=partition)
        except LogBusy:
            producer.flush(1.0)
        else:
            return


class _CountingStore(Store):
    """Says when all rows are in."""

    def __init__(self, path: Path) -> None:
        super().__init__(EmbeddedClickHouse(path))
        self.stop = threading.Event()
        self._missing = RECORDS

    def insert(self, rows: Rows, *, ingested_on: int) -> None:
        super().insert(rows, ingested_on=ingested_on)
        self._missing -= sum(topic == tokens_topic(_TENANT) for topic in rows.columns[1])
        if not self._missing:
            self.stop.set()


def _sink_seconds(profile: BrokerProfile, path: Path, group: str) -> float:
    """From the assignment of partitions to the commit behind the last row."""
    with _CountingStore(path) as store, EventProducer(profile, client_id="bench") as producer:
        store.migrate(load_migrations())
        settings = SinkSettings(profile, EmbeddedClickHouse(path), load_migrations(), group=group)
        assigned_at: list[float] = []
        metrics = SinkMetrics()
        SinkConsumer(
            settings, store, SinkLetters(producer, metrics), metrics, "bench", store.stop,
            lambda: assigned_at.append(time.perf_counter()),
        ).run()  # fmt: skip
        return time.perf_counter() - assigned_at[0]


def _bare_seconds(values: list[bytes], path: Path) -> float:
    with Store(EmbeddedClickHouse(path)) as store:
        store.migrate(load_migrations())
    client = open_client(EmbeddedClickHouse(path), database=DATABASE)
    gc.disable()  # it holds a whole batch of events at once, which would cost it a quarter in collections
    try:
        started = time.perf_counter()
        for first in range(0, len(values), _BATCH_ROWS):
            _bare_insert(client, values[first : first + _BATCH_ROWS], first)
        return time.perf_counter() - started
    finally:
        gc.enable()
        client.close()


def _bare_insert(client: Client, values: list[bytes], first: int) -> None:
    """Decode, columns, insert: the tables' own columns, so that ClickHouse has the same work."""
    events = [decode(value) for value in values]
    tokens = [event for event in events if isinstance(event, TokensGenerated)]
    others = [event for event in events if isinstance(event, GenerationStarted)]
    today, topic = int(time.time()) // 86_400, tokens_topic(_TENANT)

    def origin(rows: int) -> list[list[Any]]:
        return [[today] * rows, ["bench"] * rows, [topic] * rows, [0] * rows, list(range(first, first + rows))]

    client.insert(
        TokenRows.table,
        [
            *origin(len(tokens)), [e.tenant for e in tokens], [e.request_id for e in tokens],
            [e.attempt for e in tokens], [e.index for e in tokens], [len(e.token_ids) for e in tokens],
            [e.token_ids for e in tokens], [e.text_offset_chars for e in tokens], [e.text for e in tokens],
            [e.at_us for e in tokens],
        ],
        column_names=["ingested_on", *TokenRows.names], column_oriented=True,
    )  # fmt: skip
    client.insert(
        EventRows.table,
        [
            *origin(len(others)), ["GenerationStarted"] * len(others), [e.tenant for e in others],
            [e.request_id for e in others], [e.at_us for e in others], [b"{}"] * len(others), [""] * len(others),
        ],
        column_names=["ingested_on", *EventRows.names], column_oriented=True,
    )  # fmt: skip
