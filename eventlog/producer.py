"""Writing events: idempotent, acknowledged by all replicas, through a bounded buffer.

One producer serves threads and event loops alike. A thread of its own takes the broker's acknowledgements, so that
nobody has to poll, and wakes a waiting loop once for all acknowledgements that came together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused, RecordTooLarge
from eventlog.profile import BrokerProfile
from schemas.events import Event
from schemas.headers import headers_of
from schemas.topics import MAX_RECORD_BYTES

log = logging.getLogger("headrace.eventlog")

OnDelivery = Callable[[DeliveryFailed | None], None]
_REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


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
        max_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        """Put the event on its way; `on_delivery` is called on the acknowledgement thread, with None or the failure.

        partition: explicit, or by the key's hash.
        traceparent: of the record that this event follows from.
        max_bytes: of the whole record.

        Raises LogBusy and DeliveryFailed (nothing was sent; RecordTooLarge if it is that), and UnencodableEvent.
        """
        self.send_bytes(
            topic,
            self._codec.encode(event),
            key=key.encode(),
            headers=headers_of(event, source=self._source, traceparent=traceparent),
            partition=partition,
            on_delivery=on_delivery,
            max_bytes=max_bytes,
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
        max_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        """`send` for an event that is encoded already."""
        # librdkafka's own limit has to leave room for dead letters.
        if value is not None and len(value) + len(key) > max_bytes // 2:
            size = len(value) + len(key) + sum(len(name) + len(content) + 10 for name, content in headers)
            if size > max_bytes:
                raise RecordTooLarge(f"{topic}: {size} bytes, more than the {max_bytes} that a record may have")

        def acknowledged(error: KafkaError | None, _message: KafkaMessage) -> None:
            if on_delivery is not None:
                on_delivery(None if error is None else _failure(topic, error))

        self._produce(topic, value, key, headers, -1 if partition is None else partition, acknowledged)

    def write(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        timeout_s: float = 35.0,
    ) -> int:
        """Write a record as it is and wait for the broker; the offset at which it stands now. Blocking.

        Raises LogBusy and DeliveryFailed; RecordRefused where it makes no sense to try again.
        """
        answers: SimpleQueue[int | DeliveryFailed] = SimpleQueue()

        def acknowledged(error: KafkaError | None, message: KafkaMessage) -> None:
            answers.put((message.offset() or 0) if error is None else _failure(topic, error))

        self._produce(topic, value, key, headers, partition, acknowledged)
        try:
            answer = answers.get(timeout=timeout_s)
        except Empty:
            raise DeliveryFailed(f"{topic}: no answer within {timeout_s:.0f} s") from None
        if isinstance(answer, DeliveryFailed):
            raise answer
        return answer

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        partition: int,
        acknowledged: Callable[[KafkaError | None, KafkaMessage], None],
    ) -> None:
        try:
            self._producer.produce(
                topic, value, key, partition=partition, headers=[*headers], on_delivery=acknowledged
            )  # fmt: skip
        except BufferError:
            raise LogBusy(f"the producer's buffer is full, {topic} can't take more right now") from None
        except KafkaException as error:
            raise _failure(topic, error.args[0]) from error
        except RuntimeError as error:  # it was closed meanwhile
            raise DeliveryFailed(f"{topic}: {error}") from error

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
            try:
                self._producer.poll(0.1)
            except Exception:  # of an `on_delivery`: who waits for the next acknowledgements must still get them
                log.exception("an acknowledgement was not taken")


def _failure(topic: str, error: KafkaError) -> DeliveryFailed:
    kind = RecordRefused if error.code() in _REFUSALS else DeliveryFailed
    return kind(f"{topic}: {error.str()}")


class _LoopWaker:
    """Resolves futures of one loop from other threads, with one wake-up for all that came together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[asyncio.Future[None], DeliveryFailed | None]] = deque()
        self._woken = False

    def resolve(self, future: asyncio.Future[None], failure: DeliveryFailed | None) -> None:
        """Two threads may be here at once: who flushes takes acknowledgements too."""
        self._done.append((future, failure))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False  # before a look at what is there: what comes behind it wakes us again
        while self._done:
            future, failure = self._done.popleft()
            if future.done():  # its waiter was cancelled
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
