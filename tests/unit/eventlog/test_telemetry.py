"""Reports are best effort."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import cast

import pytest

from eventlog import telemetry
from eventlog.errors import DeliveryFailed, EventLogError, LogBusy
from eventlog.producer import EventProducer, OnDelivery
from eventlog.telemetry import QUIET_SECONDS, TelemetryWriter
from schemas.events import GatewayReported

REPORT = GatewayReported(
    gateway="g", at_us=1, state="running", interval_ms=0, open_sockets=0, open_responses=0, accepted_requests=0,
    sent_events=0, slow_clients=0,
)  # fmt: skip


@dataclass
class Log:
    """Stands in for the producer."""

    raises: EventLogError | None = None
    sent: list[tuple[str, object, str, int]] = field(default_factory=list)
    on_delivery: OnDelivery | None = None

    def send(self, topic: str, event: object, *, key: str, partition: int, on_delivery: OnDelivery) -> None:
        if self.raises is not None:
            raise self.raises
        self.sent.append((topic, event, key, partition))
        self.on_delivery = on_delivery


class Dropped:
    count = 0

    def __call__(self) -> None:
        self.count += 1


def writer_to(log: Log, dropped: Dropped) -> TelemetryWriter:
    return TelemetryWriter(cast(EventProducer, log), dropped)


def test_a_report_goes_to_the_telemetry_topic_under_its_writers_name() -> None:
    log, dropped = Log(), Dropped()
    writer_to(log, dropped).write(REPORT, key="g")
    assert log.sent == [("telemetry", REPORT, "g", 0)]
    assert log.on_delivery is not None
    log.on_delivery(None)
    assert dropped.count == 0


@pytest.mark.parametrize("error", [LogBusy("full"), DeliveryFailed("closed")])
def test_a_report_that_the_log_does_not_take_is_dropped_and_the_next_one_tried(error: EventLogError) -> None:
    log, dropped = Log(raises=error), Dropped()
    writer = writer_to(log, dropped)
    writer.write(REPORT, key="g")
    assert dropped.count == 1
    log.raises = None
    writer.write(REPORT, key="g")
    assert (len(log.sent), dropped.count) == (1, 1)


def test_after_a_refusal_nothing_is_written_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(telemetry, "monotonic", lambda: now)
    log, dropped = Log(), Dropped()
    writer = writer_to(log, dropped)
    writer.write(REPORT, key="g")
    assert log.on_delivery is not None
    with caplog.at_level(logging.WARNING, "headrace.telemetry"):
        log.on_delivery(DeliveryFailed("telemetry: Topic authorization failed"))
    assert "Topic authorization failed" in caplog.text
    now += QUIET_SECONDS - 0.1
    writer.write(REPORT, key="g")
    assert (len(log.sent), dropped.count) == (1, 2)
    now += 0.1
    writer.write(REPORT, key="g")
    assert (len(log.sent), dropped.count) == (2, 2)
