"""Writing events: idempotent, acknowledged by all replicas, through a bounded buffer.

One producer serves threads and event loops alike. A thread of its own takes the broker's acknowledgements, so that
nobody has to poll, and wakes a waiting loop once for all acknowledgements that came together.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from eventlog.errors import DeliveryFailed, LogBusy
from eventlog.profile import BrokerProfile
from schemas.events import Event
from schemas.headers import headers_of

OnDelivery = Callable[[DeliveryFailed | None], None]


class EventProducer:
    """Sends events in the order of the calls, for each partition. Close it: `close` waits for what is in flight."""

    def __init__(
        self, profile: BrokerProfile, *, client_id: str, linger_ms: float = 0, delivery_timeout_ms: int = 30_000
    ) -> None:
        """See `BrokerProfile.producer` for `delivery_timeout_ms`."""
        self._producer = Producer(
            profile.producer(client_id, linger_ms=linger_ms, delivery_timeout_ms=delivery_timeout_ms)
        )
        self._codec = profile.codec
        self._source = f"/headrace/{client_id}"
        self._closed = threading.Event()
        self._wakers: dict[asyncio.AbstractEventLoop, _LoopWaker] = {}
        self._thread = threading.Thread(target=self._take_acknowledgements, name=f"{client_id}-acks", daemon=True)
        self._thread.start()

    def send(
        self,
        topic: str,
        event: Event,
        *,
        key: str,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
        traceparent: bytes | None = None,
    ) -> None:
        """Put the event on its way; `on_delivery` is called on the acknowledgement thread, with None or the failure.

        partition: explicit, or by the key's hash.
        traceparent: of the record that this event follows from.

        Raises LogBusy (nothing was sent) and UnencodableEvent.
        """
        self.send_bytes(
            topic,
            self._codec.encode(event),
            key=key.encode(),
            headers=headers_of(event, source=self._source, traceparent=traceparent),
            partition=partition,
            on_delivery=on_delivery,
        )

    def send_bytes(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes,
        headers: list[tuple[str, bytes]],
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """`send` for an event that is encoded already."""

        def acknowledged(error: KafkaError | None, _message: object) -> None:
            if on_delivery is not None:
                on_delivery(None if error is None else DeliveryFailed(f"{topic}: {error.str()}"))

        try:
            self._producer.produce(
                topic,
                value,
                key,
                partition=-1 if partition is None else partition,
                headers=[*headers],
                on_delivery=acknowledged,
            )
        except BufferError:
            raise LogBusy(f"the producer's buffer is full, {topic} can't take more right now") from None
        except KafkaException as error:
            raise DeliveryFailed(f"{topic}: {error.args[0]}") from error

    async def deliver(
        self, topic: str, event: Event, *, key: str, partition: int | None = None, traceparent: bytes | None = None
    ) -> None:
        """Send and wait for the broker's acknowledgement. Raises LogBusy and DeliveryFailed."""
        loop = asyncio.get_running_loop()
        waker = self._wakers.setdefault(loop, _LoopWaker(loop))
        future: asyncio.Future[None] = loop.create_future()
        self.send(
            topic, event, key=key, partition=partition, traceparent=traceparent,
            on_delivery=lambda failure: waker.resolve(future, failure),
        )  # fmt: skip
        await future

    def flush(self, timeout_s: float = 10.0) -> int:
        """Wait for what is in flight; the number of records that are still not acknowledged."""
        return int(self._producer.flush(timeout_s))

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for what is in flight; what is not acknowledged by then is given up, and its `on_delivery` hears so."""
        if self._closed.is_set():
            return
        if self.flush(timeout_s):
            self._producer.purge()
            self.flush(1.0)
        self._closed.set()
        self._thread.join(timeout_s)
        self._producer.close()  # at once: nothing is left in it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_acknowledgements(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(0.1)


class _LoopWaker:
    """Resolves futures of one loop from another thread, with one wake-up for all that came together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[asyncio.Future[None], DeliveryFailed | None]] = deque()

    def resolve(self, future: asyncio.Future[None], failure: DeliveryFailed | None) -> None:
        self._done.append((future, failure))
        if len(self._done) == 1 and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._done:
            future, failure = self._done.popleft()
            if future.done():  # its waiter was cancelled
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
