"""Responses as server-sent events (WHATWG HTML, section 9.2).

The status line waits for the first thing that the log says about the request, so that a rejection is an HTTP error
and not an event. Nothing is buffered here: each event is made when the connection can take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eventlog.clock import now_us
from gateway.choices import give_up
from gateway.edge import Edge
from gateway.open_response import OpenResponse, watched
from gateway.response_stream import DELTA, ResponseStream

HEARTBEAT = b": still here\n\n"
CHUNK_BYTES = 64 * 1024  # most that is handed to the connection at once

Frames = Callable[[int, int], list[str]]
"""(which of the responses, sequence number) to the frames of that event."""


def response_events(stream: ResponseStream) -> Frames:
    """Events of the Responses API; `id` is the sequence number, for Last-Event-ID."""
    return lambda _, number: [f"id: {number}\nevent: {stream.type_of(number)}\ndata: {stream.frame(number)}\n\n"]


def data_only(frames: Frames) -> Frames:
    """Chunks of the completion APIs, which have neither ids nor names."""
    return lambda index, number: [_data(frame) for frame in frames(index, number)]


@dataclass(slots=True)
class _Cursor:
    """How far one response has been sent. next: sequence number that goes out next."""

    response: OpenResponse
    next: int
    first_delta_at_us: int | None = None

    @property
    def finished(self) -> bool:
        stream = self.response.stream
        return stream.finished and self.next >= stream.next_sequence_number


class EventStream(Response):
    """Sends what `frames` makes of each event behind `after`, of all responses in turns, up to their last ones, or
    until one of them has failed or the client has gone. Behind that: the data of `closing`.

    When one of several fails, nobody wants the others any longer: they are cancelled.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        edge: Edge,
        responses: Sequence[OpenResponse],
        frames: Frames,
        *,
        headers: Mapping[str, str],
        after: int = -1,
        closing: Callable[[], list[str]] = list,
    ) -> None:
        super().__init__(headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._edge = edge
        self._cursors = [_Cursor(response, after + 1) for response in responses]
        self._frames = frames
        self._after = after
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        stopping = asyncio.create_task(self._edge.stopping.wait())
        tasks = {sending, leaving, stopping}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if sending.done() and not sending.cancelled():
            sending.result()
        if not leaving.done() or leaving.cancelled():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        with watched(cursor.response for cursor in self._cursors) as changed:
            while True:
                changed.clear()
                while not self._ended and (chunk := self._chunk()) is not None:
                    frames, ahead = chunk
                    if frames:
                        await send({"type": "http.response.body", "body": frames, "more_body": True})
                    self._taken(ahead)
                if self._ended:
                    break
                try:
                    async with asyncio.timeout(self._edge.settings.heartbeat_seconds):
                        await changed.wait()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
        if frames := "".join(map(_data, self._closing())).encode():
            await send({"type": "http.response.body", "body": frames, "more_body": True})
        await self._leave()

    @property
    def _ended(self) -> bool:
        """All is sent, or one of them has failed."""
        finished = [cursor for cursor in self._cursors if cursor.finished]
        return len(finished) == len(self._cursors) or any(cursor.response.stream.failure for cursor in finished)

    def _chunk(self) -> tuple[bytes, list[int]] | None:
        """The next frames that are there, up to CHUNK_BYTES and no further than a failure, and the numbers behind them.

        None if there is no event.
        """
        ahead = [cursor.next for cursor in self._cursors]
        parts: list[str] = []
        size, more = 0, True
        while more and size < CHUNK_BYTES:
            more = False
            for index, cursor in enumerate(self._cursors):
                stream = cursor.response.stream
                if ahead[index] >= stream.next_sequence_number:
                    continue
                for frame in self._frames(index, ahead[index]):
                    parts.append(frame)
                    size += len(frame)
                ahead[index] += 1
                more = True
                if stream.finished and ahead[index] == stream.next_sequence_number and stream.failure is not None:
                    return "".join(parts).encode(), ahead
        return None if ahead == [cursor.next for cursor in self._cursors] else ("".join(parts).encode(), ahead)

    def _taken(self, ahead: list[int]) -> None:
        """The connection has taken what comes before these numbers."""
        for cursor, number in zip(self._cursors, ahead, strict=True):
            stream = cursor.response.stream
            self._edge.metrics.sent_events.inc(number - cursor.next)
            if cursor.first_delta_at_us is None and any(
                stream.type_of(sent) == DELTA for sent in range(cursor.next, number)
            ):
                cursor.first_delta_at_us = now_us()
            cursor.next = number

    async def _leave(self) -> None:
        for cursor in self._cursors:
            if cursor.finished:
                self._edge.delivered(
                    cursor.response, "sse", first_delta_at_us=cursor.first_delta_at_us,
                    events=cursor.next - self._after - 1, resumed_after=self._after,
                )  # fmt: skip
        await give_up(self._edge.responses, (cursor.response for cursor in self._cursors))


def _data(frame: str) -> str:
    return f"data: {frame}\n\n"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
