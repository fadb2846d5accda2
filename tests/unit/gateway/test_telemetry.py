"""What a gateway reports, and when."""

from __future__ import annotations

import asyncio

import pytest

from gateway.metrics import GatewayMetrics
from gateway.telemetry import GatewayTelemetry, Totals, gateway_reported, totals_of
from schemas.events import GatewayReported, TelemetryEvent
from tests.timing import within


class Log:
    """Keeps what is written, with its key; `third` is set at the third report."""

    def __init__(self) -> None:
        self.written: list[tuple[str, GatewayReported]] = []
        self.third = asyncio.Event()

    def write(self, event: TelemetryEvent, *, key: str) -> None:
        assert isinstance(event, GatewayReported)
        self.written.append((key, event))
        if len(self.written) == 3:
            self.third.set()

    @property
    def states(self) -> list[str]:
        return [event.state for _, event in self.written]


def test_a_report_has_what_is_open_now_and_what_was_counted_since() -> None:
    report = gateway_reported(
        "g", Totals(9, 9, 100, 1000, 1), Totals(2, 3, 104, 1050, 2), state="running", seconds=5.0012, now_us=7
    )
    assert report == GatewayReported(
        gateway="g", at_us=7, state="running", interval_ms=5001, open_sockets=2, open_responses=3, accepted_requests=4,
        sent_events=50, slow_clients=1,
    )  # fmt: skip


def test_the_totals_are_those_of_the_metrics() -> None:
    metrics = GatewayMetrics()
    assert totals_of(metrics) == Totals()
    metrics.sockets.inc(3)
    metrics.sockets.dec()
    metrics.open_responses.set(5)
    metrics.accepted.inc(7)
    metrics.sent_events.inc(40)
    metrics.slow_clients.inc()
    assert totals_of(metrics) == Totals(2, 5, 7, 40, 1)


async def test_it_reports_at_once_again_and_again_and_when_it_stops() -> None:
    metrics, log = GatewayMetrics(), Log()
    async with GatewayTelemetry("g", metrics, log, every_seconds=0.001).reporting():
        metrics.accepted.inc(3)
        async with asyncio.timeout(within(10)):
            await log.third.wait()
    assert log.states == ["running"] * (len(log.states) - 1) + ["stopping"]
    assert {key for key, _ in log.written} == {"g"}
    assert sum(event.accepted_requests for _, event in log.written) == 3


async def test_the_last_report_is_made_when_the_gateway_fails_too() -> None:
    log = Log()

    async def fail() -> None:
        async with GatewayTelemetry("g", GatewayMetrics(), log, every_seconds=60.0).reporting():
            await asyncio.sleep(0)
            raise OSError("the log is gone")

    with pytest.raises(OSError, match="the log is gone"):
        await fail()
    assert log.states == ["running", "stopping"]


async def test_an_interval_of_0_is_no_reports_at_all() -> None:
    log = Log()
    async with GatewayTelemetry("g", GatewayMetrics(), log, every_seconds=0.0).reporting():
        await asyncio.sleep(0)
    assert log.written == []
