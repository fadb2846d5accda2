"""From decisions to the log: sends the outputs of a record and says when all of them are acknowledged.

The producer acknowledges on a thread of its own; here acknowledgements come home to the event loop, with one wake-up
for all that arrived together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from eventlog.dead_letters import send_dead_letter
from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused
from eventlog.producer import EventProducer, OnDelivery
from eventlog.record import Record
from schemas.errors import ContractError
from streams.book import Change
from streams.decide import Output


class Unsendable(ContractError):
    """The broker takes no record of this size, now or later."""

    code = "unsendable"


@dataclass(slots=True, eq=False)
class Pending:
    """What one record still waits for. The sender itself counts as one until it calls `Outbox.complete`.

    traceparent: the record's, for what follows from it.
    """

    on_delivered: Callable[[], None]
    traceparent: bytes | None = None
    remaining: int = 1


class Outbox:
    """Owned by one event loop. `on_failure` is called there when the broker did not acknowledge in time."""

    def __init__(
        self, producer: EventProducer, *, max_in_flight: int, on_failure: Callable[[DeliveryFailed], None]
    ) -> None:
        self._producer = producer
        self._max_in_flight = max_in_flight
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._acknowledged: deque[tuple[Pending, DeliveryFailed | None]] = deque()
        self._in_flight = 0
        self._progress = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Records sent and not acknowledged."""
        return self._in_flight

    async def room(self) -> None:
        """Wait until less than the most that may be in flight is."""
        while self._in_flight >= self._max_in_flight:
            await self._next_acknowledgement()

    async def send(self, pending: Pending, output: Output) -> None:
        """Put an event on its way. Raises ContractError if its shape or size is wrong; waits while the log is busy."""

        def put(on_delivery: OnDelivery) -> None:
            self._producer.send(
                output.topic, output.event, key=output.key, partition=output.partition, on_delivery=on_delivery,
                traceparent=pending.traceparent,
            )  # fmt: skip

        await self._put(pending, put)

    async def send_change(self, pending: Pending, change: Change, *, topic: str, partition: int) -> None:
        """Put a record of the table's changelog on its way."""

        def put(on_delivery: OnDelivery) -> None:
            self._producer.send_bytes(
                topic, change.value, key=change.key, headers=[], partition=partition, on_delivery=on_delivery
            )

        await self._put(pending, put)

    async def send_dead_letter(
        self,
        pending: Pending,
        record: Record,
        error: ContractError,
        *,
        consumer: str,
        now_us: int,
        refused: Callable[[DeliveryFailed], None],
    ) -> None:
        """Keep what could not be read. `refused` is called, on whatever thread, when the letter can't be written at
        all; the record counts as done then.
        """

        def put(on_delivery: OnDelivery) -> None:
            def delivered(failure: DeliveryFailed | None) -> None:
                if isinstance(failure, RecordRefused):
                    refused(failure)
                    failure = None
                on_delivery(failure)

            send_dead_letter(self._producer, record, error, consumer=consumer, now_us=now_us, on_delivery=delivered)

        try:
            await self._put(pending, put)
        except Unsendable as unsendable:
            refused(RecordRefused(str(unsendable)))

    def complete(self, pending: Pending) -> None:
        """All outputs of the record are on their way."""
        self._count(pending)

    async def flush(self) -> None:
        """Wait until everything sent is acknowledged, or failed."""
        while self._in_flight:
            await self._next_acknowledgement()

    async def _put(self, pending: Pending, put: Callable[[OnDelivery], None]) -> None:
        while True:
            try:
                put(lambda failure: self._on_delivery(pending, failure))
            except LogBusy:
                await self._next_acknowledgement()
            except RecordRefused as error:
                raise Unsendable(str(error)) from error
            else:
                break
        pending.remaining += 1
        self._in_flight += 1

    async def _next_acknowledgement(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    def _on_delivery(self, pending: Pending, failure: DeliveryFailed | None) -> None:
        """On the producer's thread."""
        self._acknowledged.append((pending, failure))
        if len(self._acknowledged) == 1 and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_acknowledgements)

    def _take_acknowledgements(self) -> None:
        while self._acknowledged:
            pending, failure = self._acknowledged.popleft()
            self._in_flight -= 1
            if failure is None:
                self._count(pending)
            else:
                self._on_failure(failure)
        self._progress.set()

    def _count(self, pending: Pending) -> None:
        pending.remaining -= 1
        if pending.remaining == 0:
            pending.on_delivered()
