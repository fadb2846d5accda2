"""AsyncProducer: the same for asyncio. What is not documented here is as in Producer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
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


class AsyncProducer:
    """Belongs to the loop that it is used on. `async with`, or `await close()`."""

    def __init__(self, bootstrap_servers: str, *, source: str, **settings: Any) -> None:
        """Connects in the background, except that `schema_registry_url` is asked here: make it on a thread then."""
        self._exchange = Exchange(ProducerSettings(bootstrap_servers, source, **settings))

    async def submit(
        self,
        *,
        traceparent: str | None = None,
        on_delivery: OnDelivery | None = None,
        **request: Unpack[RequestFields],
    ) -> Submission:
        """As Producer.submit; `on_delivery` is called on another thread."""
        if not self._exchange.knows(request.get("tenant", "")):
            await asyncio.to_thread(self._exchange.place, request)
        return await self._send(self._exchange.draft(request, _BLOCKING, traceparent, on_delivery))

    async def resubmit(self, submission: Submission) -> Submission:
        return await self._send(self._exchange.draft_again(submission, _BLOCKING))

    async def cancel(self, submission: Submission, *, reason: str = "client") -> None:
        await self._send(self._exchange.draft_cancel(submission, reason))

    async def results(
        self, tenant: str | None = None, *, follow: bool = False, timeout: float | None = None
    ) -> AsyncIterator[Result]:
        with self._exchange.reading(tenant):
            question = self._exchange.next_result(tenant, follow=follow)
            while found := await self._wait(question, timeout):
                yield found[0]

    async def answer(
        self, submission: Submission, *, timeout: float | None = None, retry: Backoff | None = None
    ) -> Finished:
        give_up_at = None if timeout is None else monotonic() + timeout
        attempt = 0
        while True:
            ending = await self._ending(submission, give_up_at)
            delay = ending.retry_in_s(retry, attempt, random.random()) if isinstance(ending, Rejected) else None
            if delay is None or (give_up_at is not None and monotonic() + delay >= give_up_at):
                return answer_of(ending)
            await asyncio.sleep(delay)
            submission, attempt = await self.resubmit(submission), attempt + 1

    def forget(self, submission: Submission) -> None:
        self._exchange.forget(submission)

    async def delivered(self, submission: Submission, timeout: float | None = None) -> None:
        """As Submission.wait_delivered, awaited."""
        await self._wait(self._exchange.delivery(submission), timeout)

    async def flush(self, timeout: float = 10.0) -> int:
        return await asyncio.to_thread(self._exchange.flush, timeout)

    @property
    def skipped_events(self) -> int:
        return self._exchange.skipped_events

    async def close(self, timeout: float = 10.0) -> None:
        await asyncio.to_thread(self._exchange.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, draft: Draft) -> Submission:
        sent = self._exchange.try_send(draft)
        if sent is not None:
            return sent
        try:
            return await self._wait(self._exchange.sending(draft), self._exchange.settings.block_s)
        except ResultTimeout:
            raise self._exchange.no_room() from None

    async def _ending(self, submission: Submission, give_up_at: float | None) -> Ending:
        with self._exchange.claimed(submission) as question:
            return await self._wait(question, None if give_up_at is None else give_up_at - monotonic())

    async def _wait(self, question: Question[T], timeout: float | None) -> T:
        found = question.ask()
        if found is not None:
            return found
        give_up_at = None if timeout is None else monotonic() + timeout
        waker = _Waker(asyncio.get_running_loop())
        with self._exchange.waiters.watching(question.key, waker.wake):
            while (found := question.ask()) is None:
                pause = question.pause_s()
                left = pause if give_up_at is None else min(pause, give_up_at - monotonic())
                if left <= 0:
                    raise ResultTimeout(f"waited {timeout:.3g} s for {question.what}")
                await waker.wait(left)
        return found


class _Waker:
    """Wakes a task of one loop from any thread; many wakes before it runs cost one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = asyncio.Event()
        self._called = False

    def wake(self) -> None:
        if not self._called and not self._loop.is_closed():
            self._called = True
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()
        self._called = False


class _NotHere:
    def wait_delivered(self, submission: Submission, timeout: float | None) -> None:
        raise RuntimeError("this submission is an AsyncProducer's: await producer.delivered(submission)")


_BLOCKING = _NotHere()
