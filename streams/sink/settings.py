"""What the sink needs to know. Read from nowhere: whoever starts it passes it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from eventlog.profile import BrokerProfile
from streams.sink.clickhouse import ClickHouseAddress, EmbeddedClickHouse
from streams.sink.migrations import Migration


class ReadInterface(Protocol):
    """Answers queries for as long as its block runs; used for chDB, which nobody outside this process can open."""

    def __call__(self, address: EmbeddedClickHouse) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """profile: the broker.
    clickhouse: where the rows go; migrations: what makes its tables.
    read_interface: serves chDB while the sink runs; not used for a server, which serves itself.
    group: sinks of one group share the partitions. One group writes one database: marks, not groups, make it once.
    batch_rows, batch_bytes, batch_seconds: a batch is inserted when it has so many rows, so many bytes of records, or
        when its first record has waited so long.
    topics_seconds: how soon topics of a new tenant are noticed.
    letters_seconds: how long a batch that is due waits for its dead letters to be acknowledged, before it is put off.
    metrics_port: of Prometheus' text format on loopback; None: no port.
    first_retry_seconds, max_retry_seconds: waits between attempts while ClickHouse does not answer.
    """

    profile: BrokerProfile
    clickhouse: ClickHouseAddress
    migrations: tuple[Migration, ...]
    read_interface: ReadInterface | None = None
    group: str = "sink"
    batch_rows: int = 20_000
    batch_bytes: int = 32 * 1024 * 1024
    batch_seconds: float = 0.5
    topics_seconds: float = 1.0
    letters_seconds: float = 2.0
    metrics_port: int | None = None
    first_retry_seconds: float = 0.2
    max_retry_seconds: float = 10.0
