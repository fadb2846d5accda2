"""What every endpoint works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from eventlog.clock import now_us
from eventlog.errors import EventLogError
from eventlog.producer import EventProducer
from eventlog.registry import Registry
from gateway.metrics import GatewayMetrics
from gateway.open_response import OpenResponse
from gateway.responses import Responses
from gateway.settings import GatewaySettings
from schemas.events import ResponseDelivered
from schemas.topics import lifecycle_topic


@dataclass(frozen=True, slots=True)
class Edge:
    """The gateway's parts. `stopping` is set when open connections have to end."""

    settings: GatewaySettings
    registry: Callable[[], Registry]
    responses: Responses
    producer: EventProducer
    metrics: GatewayMetrics
    is_ready: Callable[[], bool]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def delivered(
        self, response: OpenResponse, transport: str, *, first_delta_at_us: int | None, events: int,
        resumed_after: int = -1,
    ) -> None:  # fmt: skip
        """Record that the last byte was handed to a connection. The answer is out: no failure here may reach it."""
        request = response.stream.request
        event = ResponseDelivered(
            request_id=request.request_id,
            tenant=request.tenant,
            at_us=now_us(),
            gateway=self.settings.gateway_id,
            transport=transport,
            first_delta_at_us=first_delta_at_us,
            events=events,
            resumed_after=resumed_after,
        )
        if transport == "http":  # streams count their events as they go
            self.metrics.sent_events.inc(events)
        try:
            self.producer.send(
                lifecycle_topic(request.tenant), event, key=request.request_id, traceparent=response.traceparent
            )
        except EventLogError:
            self.metrics.unrecorded.inc()
