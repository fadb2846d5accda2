"""Every metric of the streams, in one closed list. Prometheus' names; `stage` is validate or decide.

headrace_streams_records_total{stage, outcome}  records taken off the log, by what became of them: validated, admitted,
                                                settled, cancelled, ignored (already decided, or nothing to do),
                                                rejected, dead_lettered
headrace_streams_rejected_total{stage, code}    refused requests by the stable code of the error
headrace_streams_dead_letters_total{stage, reason}  records that could not be read, by the stable reason
headrace_streams_dead_letters_lost_total{stage, reason}  those whose letter the log did not take: they are in their
                                                own topic only
headrace_streams_unreadable_total{reader, reason}  records that could not be read and are no letters of ours: the
                                                registry's
headrace_streams_decision_seconds{stage}        from taking a record to having handed over its outputs
headrace_streams_in_flight{stage}               outputs sent and not yet acknowledged
headrace_streams_lag_records{stage}             records in the log and not yet taken
headrace_streams_tenants                        tenants whose requests are read
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.errors import ContractError

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class StreamsMetrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        stage = ("stage",)
        self.records = Counter(
            "headrace_streams_records", "Records taken, by outcome", ("stage", "outcome"), registry=self.registry
        )
        self.rejected = Counter(
            "headrace_streams_rejected", "Refused requests, by code", ("stage", "code"), registry=self.registry
        )
        self.dead_letters = Counter(
            "headrace_streams_dead_letters",
            "Unreadable records, by reason",
            ("stage", "reason"),
            registry=self.registry,
        )
        self.dead_letters_lost = Counter(
            "headrace_streams_dead_letters_lost", "Dead letters that the log did not take", ("stage", "reason"),
            registry=self.registry,
        )  # fmt: skip
        self.unreadable = Counter(
            "headrace_streams_unreadable", "Unreadable records that others keep", ("reader", "reason"),
            registry=self.registry,
        )  # fmt: skip
        self.decision_seconds = Histogram(
            "headrace_streams_decision_seconds", "Time to decide one record", stage, registry=self.registry,
            buckets=_BUCKETS,
        )  # fmt: skip
        self.in_flight = Gauge(
            "headrace_streams_in_flight", "Outputs not yet acknowledged", stage, registry=self.registry
        )
        self.lag = Gauge("headrace_streams_lag_records", "Records not yet taken", stage, registry=self.registry)
        self.tenants = Gauge("headrace_streams_tenants", "Tenants whose requests are read", registry=self.registry)

    def unreadable_in(self, reader: str, error: ContractError) -> None:
        """One record that a reader by assignment could not read."""
        self.unreadable.labels(reader, error.code).inc()
