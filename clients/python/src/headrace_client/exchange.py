"""One service's traffic with Kafka, out and back: what Producer and AsyncProducer share.

Nothing here waits for long: what may have to be waited for is a Question, and each of the two waits in its own way.
Two threads belong to it: one takes delivery reports when submitters don't, one (from the first question about results
on) reads token logs.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from headrace_client.contract.codec import SINGLE_OBJECT
from headrace_client.contract.errors import ContractError
from headrace_client.contract.events import Event, TokenLogEvent
from headrace_client.drafts import Draft, Drafts, OnDelivery
from headrace_client.errors import Backpressure, Closed, DeliveryFailed, HeadraceError, InvalidRequest, RegistryFailed
from headrace_client.inbox import Inbox
from headrace_client.log_tail import LogTail, Place
from headrace_client.requests import RequestFields, check_fields
from headrace_client.results import Ending, Result
from headrace_client.settings import ProducerSettings
from headrace_client.submission import DeliveryWaiter, Submission
from headrace_client.waiting import Question, Waiters

_LOG = logging.getLogger("headrace_client")
_ROOM: Final = "room"
_EVERYTHING: Final = "results of all tenants"
_ACKS_S = 0.1
_ACQUAINT_S = 5.0
_ASIDE_S = 0.002


class Exchange:
    """Threads may share it, except for `close`."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self.skipped_events = 0  # of ours, that this version of the contract can't read
        self._codec = SINGLE_OBJECT
        if settings.schema_registry_url is not None:
            from headrace_client.registry import confluent_codec

            self._codec = confluent_codec(settings.schema_registry_url, settings.schema_registry)
        self._drafts = Drafts(settings.source, self._codec)
        self._inbox = Inbox(settings.most_unread)
        self._waiters = Waiters()
        self._lock = threading.Lock()
        self._in_flight = 0
        self._submits = 0
        self._places: dict[str, Place] = {}
        self._placing = threading.Lock()
        self._readers: dict[str | None, int] = {}
        self._failure: HeadraceError | None = None
        self._closed = threading.Event()
        self._kafka = KafkaProducer(settings.producer())
        self._tail = LogTail(
            settings.consumer(), deliver=self._deliver, full=self._inbox.full, drained=self._inbox.drained,
            paused=lambda _tenant: self._waiters.wake_all(), failed=self._fail,
        )  # fmt: skip
        self._acks = threading.Thread(target=self._take_reports, name="headrace-acks", daemon=True)
        self._acks.start()

    # --- out ---------------------------------------------------------------------------------------------------------

    def knows(self, tenant: object) -> bool:
        """`place` will not block."""
        return isinstance(tenant, str) and tenant in self._places

    def place(self, fields: RequestFields) -> None:
        """Find where the tenant's answers will be. The first time for each tenant this blocks for some round trips.

        Raises InvalidRequest, UnknownTenant, LogUnreachable and Closed.
        """
        tenant = check_fields(fields)
        with self._placing:
            self._check()
            if tenant not in self._places:
                place = self._tail.find(tenant, watch=self.settings.follow_results)
                # Asked for its id as an idempotent producer, a client without a connection waits for a whole second.
                with suppress(KafkaException):
                    self._kafka.list_topics(place.requests_topic, timeout=_ACQUAINT_S)
                self._places[tenant] = place

    def draft(
        self, fields: RequestFields, waiter: DeliveryWaiter, traceparent: str | None, on_delivery: OnDelivery | None
    ) -> Draft:
        """The record of a new request, for a tenant that has its place. Raises InvalidRequest."""
        place = self._places[fields["tenant"]]
        return self._drafts.request(fields, place, waiter, traceparent=traceparent, on_delivery=on_delivery)

    def draft_again(self, submission: Submission, waiter: DeliveryWaiter) -> Draft:
        """The same request under a new id. Raises InvalidRequest for another producer's."""
        return self._drafts.again(submission, self._place_of(submission), waiter)

    def draft_cancel(self, submission: Submission, reason: str) -> Draft:
        """The record that cancels a request. Raises InvalidRequest."""
        return self._drafts.cancel(submission, self._place_of(submission), reason)

    def try_send(self, draft: Draft) -> Submission | None:
        """Hand it to the Kafka client; None when a buffer is full. Raises DeliveryFailed and Closed."""
        submission, settings = draft.submission, self.settings
        self._submits += 1
        self._check()
        try:
            self._kafka.poll(0)
        except RuntimeError:  # closed a moment ago
            self._check()
            raise
        follow = draft.is_request and settings.follow_results
        with self._lock:
            self._check()
            if self._in_flight >= settings.most_in_flight or (follow and len(self._inbox) >= settings.most_open):
                return None
            self._in_flight += 1
            if follow:
                self._inbox.follow(submission)
        try:
            self._kafka.produce(
                draft.topic, draft.value, submission.request_id, headers=draft.headers,  # type: ignore[arg-type]
                on_delivery=partial(self._reported, submission, draft.topic, draft.is_request, draft.on_delivery),
            )  # fmt: skip
        except (BufferError, KafkaException) as error:
            with self._lock:
                self._in_flight -= 1
                if follow:
                    self._inbox.forget(submission)
            if isinstance(error, BufferError):
                return None
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise InvalidRequest(
                    f"the request takes {len(draft.value)} bytes, more than a record of {draft.topic} may: `message."
                    "max.bytes` of the Kafka client, 1000000 unless kafka_producer sets it"
                ) from error
            raise DeliveryFailed(f"{draft.topic}: {error.args[0]}") from error
        return submission

    def sending(self, draft: Draft) -> Question[Submission]:
        """`try_send` until there is room."""
        busy, attempts = self.settings.busy, count()
        return Question(
            ask=partial(self.try_send, draft),
            key=_ROOM,
            what="room to send in",
            pause_s=lambda: busy.delay_s(next(attempts), random.random()) or busy.most_s,
        )

    def no_room(self) -> Backpressure:
        """Which buffer is full."""
        settings = self.settings
        if settings.follow_results and len(self._inbox) >= settings.most_open:
            return Backpressure(
                f"{len(self._inbox)} submissions have ends that nobody has read: read results(), answer() or forget() "
                "them, or set follow_results=False"
            )
        return Backpressure(f"the broker is slower than submit: {self._in_flight} submissions are not acknowledged")

    def delivery(self, submission: Submission) -> Question[bool]:
        """Whether the broker has it. Raises DeliveryFailed."""

        def ask() -> bool | None:
            if submission.failure is not None:
                raise submission.failure
            return True if submission.delivered else None

        return Question(ask, submission, f"the delivery report of {submission.request_id}")

    # --- back --------------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self, tenant: str | None) -> Iterator[None]:
        """Somebody reads this tenant's results: who waits for an answer need not fear that nobody does."""
        self._start_reading()
        with self._lock:
            self._readers[tenant] = self._readers.get(tenant, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._readers[tenant] -= 1

    def next_result(self, tenant: str | None, *, follow: bool) -> Question[tuple[Result, ...]]:
        """The next result; empty when there is none to wait for: nothing is open (without `follow`), or closed."""

        def ask() -> tuple[Result, ...] | None:
            with self._lock:
                result = self._inbox.take(tenant)
                if result is not None:
                    return (result,)
                over = not follow and not self._inbox.open_count(tenant)
            if over or (follow and self._closed.is_set()):
                return ()
            self._check()
            return None

        what = "the next result" if tenant is None else f"the next result of {tenant}"
        return Question(ask, _EVERYTHING if tenant is None else tenant, what)

    @contextmanager
    def claimed(self, submission: Submission) -> Iterator[Question[Ending]]:
        """The end of one submission, which is not in `next_result` within the block.

        Raises InvalidRequest if its end has been read, or it is not followed. Asking raises that too, when another
        thread takes the end or forgets it meanwhile, and Backpressure when what others wait for keeps it from being
        read.
        """
        self._start_reading()
        try:
            with self._lock:
                self._inbox.claim(submission)
        except KeyError:
            raise _not_followed(submission) from None
        try:
            yield Question(partial(self._ending, submission), submission, f"the answer of {submission.request_id}")
        finally:
            with self._lock:
                self._inbox.release(submission)

    def forget(self, submission: Submission) -> None:
        """Its results are not wanted."""
        with self._lock:
            self._inbox.forget(submission)
        self._waiters.wake(_ROOM, submission, submission.tenant, _EVERYTHING)

    @property
    def waiters(self) -> Waiters:
        return self._waiters

    @property
    def closed(self) -> threading.Event:
        return self._closed

    def flush(self, timeout_s: float) -> int:
        """Wait for delivery reports; how many records are still without one."""
        if self._closed.is_set():  # they all have one
            return 0
        return int(self._kafka.flush(timeout_s))

    def close(self, timeout_s: float) -> None:
        """Wait for delivery reports; what has none by then has failed. Whoever waits for results gets Closed."""
        if self._closed.is_set():
            return
        if self.flush(timeout_s):
            self._kafka.purge()
            self.flush(1.0)
        self._failure = Closed("the producer is closed")
        self._closed.set()
        self._acks.join()
        self._tail.close()
        self._kafka.close()
        self._waiters.wake_all()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _place_of(self, submission: Submission) -> Place:
        try:
            return self._places[submission.tenant]
        except KeyError:
            raise InvalidRequest(f"{submission.request_id} was not submitted by this producer") from None

    def _reported(
        self,
        submission: Submission,
        topic: str,
        is_request: bool,
        on_delivery: OnDelivery | None,
        error: KafkaError | None,
        _message: object,
    ) -> None:
        failure = None if error is None else DeliveryFailed(f"{topic}: {error.str()}")
        with self._lock:
            self._in_flight -= 1
            if is_request:
                submission.delivered, submission.failure = failure is None, failure
                if failure is not None:
                    self._inbox.fail(submission, failure)
        self._waiters.wake(_ROOM, submission)
        if failure is not None:
            self._waiters.wake(submission.tenant, _EVERYTHING)
        if on_delivery is not None:
            try:
                on_delivery(submission, failure)
            except Exception:
                _LOG.exception("on_delivery of %s", submission.request_id)

    def _take_reports(self) -> None:
        """Steps aside while others submit, who take reports as they go: two threads that pass the interpreter lock
        back and forth for each report would cost submit nine tenths of its speed.
        """
        while not self._closed.is_set():
            seen = self._submits
            self._closed.wait(_ASIDE_S)
            if seen == self._submits:
                self._kafka.poll(_ACKS_S)

    def _start_reading(self) -> None:
        if not self.settings.follow_results:
            raise InvalidRequest("this producer was made with follow_results=False: it reads no results")
        self._check()
        self._tail.start()

    def _ending(self, submission: Submission) -> Ending | None:
        tenant = submission.tenant
        with self._lock:
            try:
                ending = self._inbox.take_ending(submission)
            except KeyError:
                raise _not_followed(submission) from None
            waits = not self._readers.get(tenant) and not self._readers.get(None) and not self._inbox.drained(tenant)
        if ending is not None:
            self._waiters.wake(_ROOM)
            return ending
        self._check()
        if waits and self._tail.is_paused(tenant):
            raise Backpressure(
                f"more than {self.settings.most_unread} characters and tokens of other submissions of {tenant} wait "
                "before this answer, and nobody reads them: read results(), or answer() or forget() older submissions"
            )
        return None

    def _deliver(self, records: Sequence[Message]) -> None:
        events = []
        for record in records:
            key = record.key()
            if (key.encode() if isinstance(key, str) else key or b"") in self._inbox:
                event = self._decoded(record)
                if isinstance(event, TokenLogEvent):
                    events.append(event)
        with self._lock:
            grown = {submission for event in events if (submission := self._inbox.apply(event)) is not None}
            ended = [submission for submission in grown if self._inbox.has_ended(submission)]
        if grown:
            self._waiters.wake(_EVERYTHING, *{submission.tenant for submission in grown}, *ended)

    def _decoded(self, record: Message) -> Event | None:
        """None for what this version can't read. Raises RegistryFailed for ids that there is nobody to ask about."""
        try:
            return self._codec.decode(record.value() or b"")
        except ContractError as error:
            if getattr(error, "schema_id", None) is not None and self.settings.schema_registry_url is None:
                raise RegistryFailed(
                    f"answers are in Confluent framing ({error}): set schema_registry_url to the deployment's registry"
                ) from error
            self.skipped_events += 1
            _LOG.warning("skipped a record of %s at %s: %s", record.topic(), record.offset(), error)
            return None

    def _fail(self, failure: HeadraceError) -> None:
        self._failure = failure
        self._waiters.wake_all()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)


def _not_followed(submission: Submission) -> InvalidRequest:
    return InvalidRequest(f"the end of {submission.request_id} has been read, or is not followed here")
