"""Every response that this gateway follows: making them, finding them again, cancelling them.

Owned by the event loop. The log is the truth; what stands here is a fold of it that can be made again at any time,
on any gateway, and is dropped when nobody needs it.
"""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from eventlog.clock import monotonic, now_ms, now_us
from eventlog.errors import EventLogError, RecordTooLarge
from eventlog.producer import EventProducer
from eventlog.reader import Position
from gateway.errors import NotFound, Overloaded, RequestTooLarge
from gateway.log_backfill import LogBackfill
from gateway.log_tail import LogTail
from gateway.metrics import GatewayMetrics
from gateway.open_response import OpenResponse
from gateway.requests import ClientRequest
from gateway.response_stream import ResponseStream
from gateway.settings import GatewaySettings
from schemas.errors import InvalidName
from schemas.events import RequestCancelled, RequestSubmitted, TokenLogEvent
from schemas.headers import continued_traceparent
from schemas.ids import RANDOM_BITS, new_request_id, partition_of, request_id_of
from schemas.topics import requests_topic, tokens_topic

RETRY_AFTER_MS = 1_000
MAX_BACKFILLS = 4
ABANDONED_SECONDS = 900.0  # how long an unfinished response is followed for nobody


@dataclass(slots=True)
class _Following:
    """A partition that the tail reads: how many unfinished responses need it, and since when none does."""

    responses: int = 0
    idle_since: float = 0.0
    positioned: bool = False  # the tail reads it already: a request written now is not missed


class Responses:
    """The gateway's work on the log. Set `tail` before use: it delivers to `deliver`."""

    def __init__(
        self, settings: GatewaySettings, producer: EventProducer, backfill: LogBackfill, metrics: GatewayMetrics
    ) -> None:
        self._settings = settings
        self._producer = producer
        self._backfill = backfill
        self._metrics = metrics
        self._open: dict[str, OpenResponse] = {}
        self._kept: OrderedDict[str, OpenResponse] = OrderedDict()  # finished ones
        self._joining: dict[tuple[str, str], asyncio.Task[OpenResponse | None]] = {}
        self._overtaken: dict[str, list[TokenLogEvent]] = {}  # live events of responses that are being read back
        self._following: dict[Position, _Following] = {}
        self._backfills = asyncio.Semaphore(MAX_BACKFILLS)
        self.tail = LogTail(
            settings.profile, client_id=f"{settings.gateway_id}-tail", deliver=self.deliver,
            unreadable=partial(metrics.unreadable, "tail"),
        )  # fmt: skip

    async def create(
        self,
        tenant: str,
        request: ClientRequest,
        *,
        received_at_us: int,
        deadline_at_us: int | None = None,
        traceparent: str | None = None,
    ) -> OpenResponse:
        """Write the request; returns when the broker has it. Raises RequestTooLarge, and Overloaded: then it may or may
        not have it.

        traceparent: what the client sent under this name.
        """
        if len(self._open) >= self._settings.max_open_responses:
            raise Overloaded("this gateway has no room for another response", retry_after_ms=RETRY_AFTER_MS)
        position = self._partition_for(tenant)
        with self._holding(position) as following:
            if not following.positioned:
                await self._follow(position)
            request_id = new_request_id(
                now_ms=now_ms(), partition=position[1], entropy=secrets.randbits(RANDOM_BITS)
            )  # fmt: skip
            submitted = request.submitted(
                request_id=request_id, tenant=tenant, at_us=now_us(), received_at_us=received_at_us,
                deadline_at_us=deadline_at_us,
            )  # fmt: skip
            response = OpenResponse(ResponseStream(submitted), tenant, monotonic())
            if traceparent is not None:
                response.traceparent = continued_traceparent(traceparent, request_id)
            self._add(request_id, response)
        try:
            await self._write(submitted, response.traceparent)
        except BaseException:
            self._remove(request_id)
            raise
        response.submitted = True
        self._metrics.accepted.inc()
        return response

    async def find(self, tenant: str, response_id: str) -> OpenResponse:
        """A response of this tenant, live or read back from the log. Raises NotFound and Overloaded."""
        missing = NotFound(f"no response {response_id[:64]!r}", code="response_not_found", param="response_id")
        try:
            request_id = request_id_of(response_id)
        except InvalidName:
            raise missing from None
        if partition_of(request_id) >= self._settings.topics.tokens:
            raise missing
        response = self._open.get(request_id) or self._kept.get(request_id)
        if response is None:
            response = await self._joined(tenant, request_id)
        if response is None:
            raise missing
        if response.tenant != tenant:
            raise missing
        response.idle_since = monotonic()
        return response

    async def cancel(self, response: OpenResponse, reason: str = "client") -> None:
        """Ask for its end; the log says when it has come. Raises Overloaded."""
        if response.stream.finished:
            return
        request_id = response.stream.request.request_id
        await self._write(
            RequestCancelled(request_id=request_id, tenant=response.tenant, at_us=now_us(), reason=reason),
            response.traceparent,
        )

    def deliver(self, events: Sequence[TokenLogEvent]) -> None:
        """What the tail brought. Watchers are woken once, however much there was for them."""
        wakes: dict[Callable[[], None], None] = {}
        for event in events:
            response = self._open.get(event.request_id)
            if response is None:
                if (overtaken := self._overtaken.get(event.request_id)) is not None:
                    overtaken.append(event)
                continue
            if response.stream.apply(event):
                wakes |= response.watchers
                if response.stream.finished:
                    self._finish(event.request_id)
        for wake in wakes:
            wake()

    def sweep(self, now: float) -> None:
        """Drop what nobody has needed for a while. Call it about once a second."""
        since = now - self._settings.linger_seconds
        for request_id, response in list(self._kept.items()):
            surplus = len(self._kept) > self._settings.max_kept_responses
            if not response.watchers and (surplus or response.idle_since < since):
                del self._kept[request_id]
        for request_id, response in list(self._open.items()):
            if not response.watchers and response.idle_since < now - ABANDONED_SECONDS:
                self._remove(request_id)  # whoever asks for it later reads it back
        for position, following in list(self._following.items()):
            if following.responses == 0 and following.idle_since < since:
                del self._following[position]
                self.tail.unfollow(position)

    def _partition_for(self, tenant: str) -> Position:
        """One partition for each tenant, another one on each gateway: few to follow, and spread."""
        number = zlib.crc32(f"{self._settings.gateway_id}/{tenant}".encode()) % self._settings.topics.tokens
        return tokens_topic(tenant), number

    @contextmanager
    def _holding(self, position: Position) -> Iterator[_Following]:
        """The sweep lets this partition be: someone is about to have a response there."""
        following = self._following.setdefault(position, _Following())
        following.responses += 1
        try:
            yield following
        finally:
            following.responses -= 1
            following.idle_since = monotonic()

    async def _follow(self, position: Position) -> int:
        """For those who hold it."""
        following = self._following[position]
        try:
            async with asyncio.timeout(self._settings.accept_seconds):
                offset = await self.tail.follow(position)
        except (EventLogError, TimeoutError) as error:
            raise self._unreachable(error) from error
        following.positioned = True
        return offset

    async def _write(self, event: RequestSubmitted | RequestCancelled, traceparent: bytes | None) -> None:
        topic = requests_topic(event.tenant)
        try:
            async with asyncio.timeout(self._settings.accept_seconds):
                await self._producer.deliver(topic, event, key=event.request_id, traceparent=traceparent)
        except RecordTooLarge as error:
            raise RequestTooLarge(
                f"the request does not fit into one record of the log ({error}); shorten it"
            ) from error
        except (EventLogError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Overloaded:
        self._metrics.log_failures.inc()
        reason = str(error) or "no answer in time"
        return Overloaded(
            f"the log does not answer ({reason}); try again", code="log_unavailable",
            retry_after_ms=RETRY_AFTER_MS,
        )  # fmt: skip

    async def _joined(self, tenant: str, request_id: str) -> OpenResponse | None:
        """`_join`, once for all who ask at the same time."""
        key = (tenant, request_id)
        task = self._joining.get(key)
        if task is None:
            task = self._joining[key] = asyncio.create_task(self._join(tenant, request_id))
            task.add_done_callback(lambda _: self._joining.pop(key, None))
        return await asyncio.shield(task)

    async def _join(self, tenant: str, request_id: str) -> OpenResponse | None:
        """Read a response back and follow it on, without a gap. None if the tenant has no such request."""
        position = (tokens_topic(tenant), partition_of(request_id))
        with self._holding(position):
            try:
                async with self._backfills:
                    found = await asyncio.to_thread(self._backfill.find_request, tenant, request_id)
                    if found is None:
                        return None
                    self._overtaken[request_id] = []
                    self.tail.watch(request_id)
                    until = await self._follow(position)
                    events = await asyncio.to_thread(self._backfill.token_log, tenant, request_id, until)
            except EventLogError as error:
                self._forget(request_id)
                raise self._unreachable(error) from error
            except BaseException:
                self._forget(request_id)
                raise
            # From here to the end nothing is awaited, so that no live event can slip in between.
            request, traceparent = found
            response = OpenResponse(ResponseStream(request), tenant, monotonic(), True, traceparent)
            for event in (*events, *self._overtaken.pop(request_id)):
                response.stream.apply(event)
            self._add(request_id, response)
            if response.stream.finished:
                self._finish(request_id, counted=False)
            return response

    def _forget(self, request_id: str) -> None:
        self._overtaken.pop(request_id, None)
        self.tail.unwatch(request_id)

    def _add(self, request_id: str, response: OpenResponse) -> None:
        self._open[request_id] = response
        self._following.setdefault(self._position_of(response), _Following()).responses += 1
        self.tail.watch(request_id)
        self._metrics.open_responses.set(len(self._open))

    def _remove(self, request_id: str) -> OpenResponse:
        response = self._open.pop(request_id)
        following = self._following[self._position_of(response)]
        following.responses -= 1
        following.idle_since = response.idle_since = monotonic()
        self.tail.unwatch(request_id)
        self._metrics.open_responses.set(len(self._open))
        return response

    def _finish(self, request_id: str, *, counted: bool = True) -> None:
        response = self._remove(request_id)
        self._kept[request_id] = response
        if counted:
            self._metrics.finished(response.stream, now_us())

    def _position_of(self, response: OpenResponse) -> Position:
        return tokens_topic(response.tenant), partition_of(response.stream.request.request_id)
