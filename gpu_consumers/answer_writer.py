"""Writes answers to the token log. Called by the engine loop only; acknowledgements come on the producer's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache

from eventlog.errors import DeliveryFailed, LogBusy
from eventlog.producer import EventProducer, OnDelivery
from gpu_consumers.generation import Generation
from gpu_consumers.metrics import WorkerMetrics
from schemas.events import GenerationFailed, GenerationFinished, GenerationStarted, TokensGenerated
from schemas.ids import partition_of
from schemas.topics import VALIDATED, tokens_topic

_ROOM_SECONDS = 0.005
_partition_of = lru_cache(maxsize=4096)(partition_of)  # asked for every record
Done = Callable[[], None]
Lost = Callable[[DeliveryFailed], None]
AnswerEvent = GenerationStarted | TokensGenerated | GenerationFinished | GenerationFailed


class WriterStopped(Exception):
    """The worker stops, so the wait for room in the producer's buffer ended."""


class AnswerWriter:
    """One record for each sequence and step while the broker keeps up; several steps in one while it doesn't.

    Tokens that can't be written yet stay in their generation, at most as many as its answer has; a terminal event
    waits for room. Nothing is ever dropped.
    """

    def __init__(
        self, producer: EventProducer, metrics: WorkerMetrics, *, stop: threading.Event, max_unacknowledged: int
    ) -> None:
        """max_unacknowledged: records on their way beyond which tokens of further steps are put together."""
        self._producer = producer
        self._metrics = metrics
        self._stop = stop
        self._max_unacknowledged = max_unacknowledged
        self._sent = 0
        self._acknowledged = 0  # written by the producer's thread alone

    @property
    def unacknowledged(self) -> int:
        return self._sent - self._acknowledged

    @property
    def is_behind(self) -> bool:
        return self.unacknowledged > self._max_unacknowledged

    def started(self, generation: Generation, now_us: int, lost: Lost, *, cached_tokens: int = 0) -> None:
        """It has a slot. Raises WriterStopped."""
        event = generation.started(now_us, cached_tokens=cached_tokens)
        self._send_when_there_is_room(event, self._on_delivery(lost), generation.traceparent)

    def tokens(self, generation: Generation, lost: Lost) -> bool:
        """Write what is unwritten; False if some of it has to wait."""
        while (event := generation.unwritten()) is not None:
            if self.is_behind or not self._send(event, self._on_delivery(lost), generation.traceparent):
                return False
            generation.written()
        return True

    def end(
        self, generation: Generation, terminal: GenerationFinished | GenerationFailed, done: Done, lost: Lost
    ) -> None:
        """Write what is unwritten, the terminal event, and its copy for quota. `done` when both are acknowledged.

        Raises WriterStopped.
        """
        trace = generation.traceparent
        while (event := generation.unwritten()) is not None:
            self._send_when_there_is_room(event, self._on_delivery(lost), trace)
            generation.written()
        both = _Countdown(2, done)
        self._send_when_there_is_room(terminal, self._on_delivery(lost, both.one), trace)
        self._send_when_there_is_room(terminal, self._on_delivery(lost, both.one), trace, for_quota=True)

    def settle_again(
        self,
        terminal: GenerationFinished | GenerationFailed,
        done: Done,
        lost: Lost,
        *,
        traceparent: bytes | None = None,
    ) -> None:
        """The copy for quota alone, of a terminal event that is in the log: its writer may have died between the two.

        Raises WriterStopped.
        """
        self._send_when_there_is_room(terminal, self._on_delivery(lost, done), traceparent, for_quota=True)

    def _send_when_there_is_room(
        self, event: AnswerEvent, on_delivery: OnDelivery, traceparent: bytes | None, *, for_quota: bool = False
    ) -> None:
        while not self._send(event, on_delivery, traceparent, for_quota=for_quota):
            self._metrics.log_busy.inc()
            if self._stop.wait(_ROOM_SECONDS):
                raise WriterStopped

    def _send(
        self, event: AnswerEvent, on_delivery: OnDelivery, traceparent: bytes | None, *, for_quota: bool = False
    ) -> bool:
        try:
            if for_quota:
                self._producer.send(
                    VALIDATED.name, event, key=event.tenant, on_delivery=on_delivery, traceparent=traceparent
                )
            else:
                self._producer.send(
                    tokens_topic(event.tenant),
                    event,
                    key=event.request_id,
                    partition=_partition_of(event.request_id),
                    on_delivery=on_delivery,
                    traceparent=traceparent,
                )
        except LogBusy:
            return False
        self._sent += 1
        return True

    def _on_delivery(self, lost: Lost, done: Done | None = None) -> OnDelivery:
        def acknowledged(failure: DeliveryFailed | None) -> None:
            self._acknowledged += 1
            if failure is not None:
                lost(failure)
            elif done is not None:
                done()

        return acknowledged


class _Countdown:
    """Calls `done` at the last of several acknowledgements; they come on one thread."""

    def __init__(self, count: int, done: Done) -> None:
        self._left = count
        self._done = done

    def one(self) -> None:
        self._left -= 1
        if not self._left:
            self._done()
