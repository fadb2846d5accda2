"""Every metric of the sink, in one closed list. `topic` is the kind of topic (tokens, not tokens.acme).

headrace_sink_rows_total{table}               rows that ClickHouse has taken
headrace_sink_insert_seconds                  from beginning to insert a batch to having committed its offsets
headrace_sink_failed_flushes_total            batches that ClickHouse or the log did not take, each attempt
headrace_sink_waiting_rows                    rows that are read and not yet in ClickHouse
headrace_sink_lag_records                     records behind the last one that is committed, of the partitions here
headrace_sink_unreadable_total{topic, reason} records that could not be read; they are in `events` as they are
headrace_sink_dead_letters_total{topic, reason}       those whose letter it falls to the sink to write
headrace_sink_dead_letters_lost_total{topic, reason}  of these, the ones whose letter the log did not take
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.errors import ContractError
from schemas.topics import kind_of

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class SinkMetrics:
    """One sink's figures, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.rows = Counter("headrace_sink_rows", "Rows in ClickHouse", ("table",), registry=registry)
        self.insert_seconds = Histogram(
            "headrace_sink_insert_seconds", "Time to insert and commit a batch", buckets=_SECONDS, registry=registry
        )
        self.failed_flushes = Counter("headrace_sink_failed_flushes", "Attempts that failed", registry=registry)
        self.waiting_rows = Gauge("headrace_sink_waiting_rows", "Rows not yet in ClickHouse", registry=registry)
        self.lag = Gauge("headrace_sink_lag_records", "Records not yet committed", registry=registry)
        labels = ("topic", "reason")
        self._unreadable = Counter("headrace_sink_unreadable", "Unreadable records", labels, registry=registry)
        self._letters = Counter("headrace_sink_dead_letters", "Dead letters to write", labels, registry=registry)
        self._lost = Counter(
            "headrace_sink_dead_letters_lost", "Dead letters that the log did not take", labels, registry=registry
        )

    def unreadable(self, topic: str, error: ContractError) -> None:
        self._unreadable.labels(_kind(topic), error.code).inc()

    def dead_lettered(self, topic: str, error: ContractError) -> None:
        self._letters.labels(_kind(topic), error.code).inc()

    def letter_lost(self, topic: str, error: ContractError) -> None:
        self._lost.labels(_kind(topic), error.code).inc()


def _kind(topic: str) -> str:
    kind = kind_of(topic)
    return "unknown" if kind is None else kind.name
