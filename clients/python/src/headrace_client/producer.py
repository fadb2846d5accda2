"""Producer: submit requests and read their results, with threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from headrace_client.backoff import Backoff
from headrace_client.clock import monotonic
from headrace_client.drafts import Draft, OnDelivery
from headrace_client.errors import ResultTimeout
from headrace_client.exchange import Exchange
from headrace_client.requests import RequestFields
from headrace_client.results import Ending, Finished, Rejected, Result, answer_of
from headrace_client.settings import ProducerSettings
from headrace_client.submission import Submission
from headrace_client.waiting import Question

T = TypeVar("T")


class Producer:
    """Threads may share one. Use it as a context manager, or call `close`.

        Producer("127.0.0.1:9092", source="mail-sorter", kafka={...}, most_in_flight=1000)

    Further arguments are those of ProducerSettings.
    """

    def __init__(self, bootstrap_servers: str, *, source: str, **settings: Any) -> None:
        """Connects in the background. Raises RegistryFailed when `schema_registry_url` is set and does not answer."""
        self._exchange = Exchange(ProducerSettings(bootstrap_servers, source, **settings))

    def submit(
        self,
        *,
        traceparent: str | None = None,
        on_delivery: OnDelivery | None = None,
        **request: Unpack[RequestFields],
    ) -> Submission:
        """Put a request on its way. Returns when the Kafka client has it; `wait_delivered` waits for the broker.

        traceparent: the W3C trace that it belongs to. on_delivery: called on a thread of its own with the submission
        and None, or the failure; it must not block.

        Raises InvalidRequest, UnknownTenant, LogUnreachable, Backpressure (no room within `block_s`) and Closed.
        """
        if not self._exchange.knows(request.get("tenant", "")):
            self._exchange.place(request)
        return self._send(self._exchange.draft(request, self, traceparent, on_delivery))

    def resubmit(self, submission: Submission) -> Submission:
        """The same request once more, under a new id. Raises as `submit`."""
        return self._send(self._exchange.draft_again(submission, self))

    def cancel(self, submission: Submission, *, reason: str = "client") -> None:
        """Ask for its end, which comes as a result like any other (`finish_reason` cancelled, if it was in time)."""
        self._send(self._exchange.draft_cancel(submission, reason))

    def results(
        self, tenant: str | None = None, *, follow: bool = False, timeout: float | None = None
    ) -> Iterator[Result]:
        """Results of what this producer has submitted for a tenant (for all, without one), as they come.

        Each request brings TextDeltas, then one of Finished, Failed, Rejected, NotDelivered; the tokens of a request
        are in order, each once. Several iterators share them. Ends when no submission is open; with `follow`, only
        when the producer is closed.

        timeout: longest wait for the next one, in seconds; ResultTimeout past it, and iterating again goes on.

        Raises LogUnreachable, RegistryFailed (answers in Confluent framing, and no `schema_registry_url`) and Closed.
        """
        with self._exchange.reading(tenant):
            question = self._exchange.next_result(tenant, follow=follow)
            while found := self._wait(question, timeout):
                yield found[0]

    def answer(self, submission: Submission, *, timeout: float | None = None, retry: Backoff | None = None) -> Finished:
        """Wait for the whole answer. Meanwhile it is not in `results`.

        timeout: seconds, for all attempts together. retry: submit again when quota or room is wanting (429 and 503
        with retry_after_ms), not before the server says, with jitter; None: the first rejection is raised.

        Raises RequestRefused, AnswerFailed, DeliveryFailed, ResultTimeout (it can be asked for again), Backpressure
        (see `most_unread`), LogUnreachable, RegistryFailed, Closed, and InvalidRequest if its end has been read.
        """
        give_up_at = None if timeout is None else monotonic() + timeout
        attempt = 0
        while True:
            ending = self._ending(submission, give_up_at)
            delay = ending.retry_in_s(retry, attempt, random.random()) if isinstance(ending, Rejected) else None
            if delay is None or (give_up_at is not None and monotonic() + delay >= give_up_at):
                return answer_of(ending)
            self._exchange.closed.wait(delay)
            submission, attempt = self.resubmit(submission), attempt + 1

    def forget(self, submission: Submission) -> None:
        """Nobody will read its results; the request itself goes on."""
        self._exchange.forget(submission)

    def wait_delivered(self, submission: Submission, timeout: float | None = None) -> None:
        """As `submission.wait_delivered`."""
        self._wait(self._exchange.delivery(submission), timeout)

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until the broker has everything; how many records it has not acknowledged after `timeout` seconds."""
        return self._exchange.flush(timeout)

    @property
    def skipped_events(self) -> int:
        """Events of our requests that this version can't read (a newer release's); they are passed over."""
        return self._exchange.skipped_events

    def close(self, timeout: float = 10.0) -> None:
        """Flush; what the broker has not acknowledged after `timeout` seconds has failed. Again: nothing happens."""
        self._exchange.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, draft: Draft) -> Submission:
        sent = self._exchange.try_send(draft)
        if sent is not None:
            return sent
        try:
            return self._wait(self._exchange.sending(draft), self._exchange.settings.block_s)
        except ResultTimeout:
            raise self._exchange.no_room() from None

    def _ending(self, submission: Submission, give_up_at: float | None) -> Ending:
        with self._exchange.claimed(submission) as question:
            return self._wait(question, None if give_up_at is None else give_up_at - monotonic())

    def _wait(self, question: Question[T], timeout: float | None) -> T:
        """The answer, within so many seconds. Raises ResultTimeout, and what the question raises."""
        found = question.ask()
        if found is not None:
            return found
        give_up_at = None if timeout is None else monotonic() + timeout
        woken = threading.Event()
        with self._exchange.waiters.watching(question.key, woken.set):
            while (found := question.ask()) is None:
                pause = question.pause_s()
                left = pause if give_up_at is None else min(pause, give_up_at - monotonic())
                if left <= 0:
                    raise ResultTimeout(f"waited {timeout:.3g} s for {question.what}")
                woken.wait(min(left, threading.TIMEOUT_MAX))
                woken.clear()
        return found
