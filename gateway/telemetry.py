"""What a gateway tells of itself: a report every few seconds, the first when it serves and the last when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import Counter, Gauge

from eventlog.clock import monotonic, now_us
from eventlog.telemetry import State, Writer
from gateway.metrics import GatewayMetrics
from schemas.events import GatewayReported


@dataclass(frozen=True, slots=True)
class Totals:
    """What the metrics say at one moment: what is open, and what was counted since the gateway began."""

    open_sockets: int = 0
    open_responses: int = 0
    accepted_requests: int = 0
    sent_events: int = 0
    slow_clients: int = 0


def gateway_reported(
    gateway: str, before: Totals, now: Totals, *, state: State, seconds: float, now_us: int
) -> GatewayReported:
    """What happened between two moments that are `seconds` apart. Pure."""
    return GatewayReported(
        gateway=gateway,
        at_us=now_us,
        state=state,
        interval_ms=round(seconds * 1000),
        open_sockets=now.open_sockets,
        open_responses=now.open_responses,
        accepted_requests=now.accepted_requests - before.accepted_requests,
        sent_events=now.sent_events - before.sent_events,
        slow_clients=now.slow_clients - before.slow_clients,
    )


class GatewayTelemetry:
    """Reports on the gateway's loop, which never waits for it."""

    def __init__(self, gateway: str, metrics: GatewayMetrics, writer: Writer, *, every_seconds: float) -> None:
        """every_seconds: 0 for no reports at all."""
        self._gateway = gateway
        self._metrics = metrics
        self._writer = writer
        self._every_seconds = every_seconds
        self._before = Totals()
        self._since = monotonic()

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """At once, every few seconds, and at the end of the block."""
        if self._every_seconds <= 0:
            yield
            return
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()  # a fault of ours
            self._report("stopping")

    async def _run(self) -> None:
        while True:
            self._report("running")
            await asyncio.sleep(self._every_seconds)

    def _report(self, state: State) -> None:
        totals, now = totals_of(self._metrics), monotonic()
        event = gateway_reported(
            self._gateway, self._before, totals, state=state, seconds=now - self._since, now_us=now_us()
        )
        self._before, self._since = totals, now
        self._writer.write(event, key=self._gateway)


def totals_of(metrics: GatewayMetrics) -> Totals:
    """What stands in the metrics now."""
    return Totals(
        open_sockets=_value(metrics.sockets),
        open_responses=_value(metrics.open_responses),
        accepted_requests=_value(metrics.accepted),
        sent_events=_value(metrics.sent_events),
        slow_clients=_value(metrics.slow_clients),
    )


def _value(metric: Counter | Gauge) -> int:
    """Of a metric without labels."""
    return int(next(iter(metric.collect())).samples[0].value)
