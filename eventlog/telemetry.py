"""Writing reports of how a part is: best effort, so that nothing ever waits for them or fails because of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, Protocol

from eventlog.clock import monotonic
from eventlog.errors import DeliveryFailed, EventLogError
from eventlog.producer import EventProducer
from schemas.events import TelemetryEvent
from schemas.topics import TELEMETRY

QUIET_SECONDS = 60.0
"""How long no report is written after one that the broker refused: a refusal makes an idempotent producer begin its
numbers again, for which the records of other topics wait a moment."""

log = logging.getLogger("headrace.telemetry")


State = Literal["running", "stopping"]


class Writer(Protocol):
    """What takes the reports of a part: a TelemetryWriter."""

    def write(self, event: TelemetryEvent, *, key: str) -> None: ...


class TelemetryWriter:
    """Through the part's own producer. A report that the log does not take is dropped."""

    def __init__(self, producer: EventProducer, dropped: Callable[[], None]) -> None:
        """dropped: told of each report that is, on the writer's thread or the producer's."""
        self._producer = producer
        self._dropped = dropped
        self._quiet_until = float("-inf")

    def write(self, event: TelemetryEvent, *, key: str) -> None:
        """Returns at once, and never raises for what the log does. Call it from one thread at a time."""
        if monotonic() < self._quiet_until:
            self._dropped()
            return
        try:
            self._producer.send(TELEMETRY.name, event, key=key, partition=0, on_delivery=self._acknowledged)
        except EventLogError as error:
            log.debug("a report was dropped: %s", error)
            self._dropped()

    def _acknowledged(self, failure: DeliveryFailed | None) -> None:
        if failure is not None:
            self._dropped()
            self._quiet_until = monotonic() + QUIET_SECONDS
            log.warning("a report was refused, the next one is tried in %.0f s: %s", QUIET_SECONDS, failure)
