"""A response as server-sent events (WHATWG HTML, section 9.2).

The status line waits for the first thing that the log says about the request, so that a rejection is an HTTP error
and not an event. Nothing is buffered here: each event is made when the connection can take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eventlog.clock import now_us
from gateway.edge import Edge
from gateway.open_response import OpenResponse
from gateway.response_stream import DELTA, ResponseStream

HEARTBEAT = b": still here\n\n"
CHUNK_BYTES = 64 * 1024  # most that is handed to the connection at once

Frames = Callable[[int], list[str]]


def response_events(stream: ResponseStream) -> Frames:
    """Events of the Responses API; `id` is the sequence number, for Last-Event-ID."""
    return lambda number: [f"id: {number}\nevent: {stream.type_of(number)}\ndata: {stream.frame(number)}\n\n"]


def data_only(frames: Frames) -> Frames:
    """Chunks of the completion APIs, which have neither ids nor names."""
    return lambda number: [f"data: {frame}\n\n" for frame in frames(number)]


class EventStream(Response):
    """Sends what `frames` makes of each event behind `after`, up to the last one, or until the client has gone."""

    media_type = "text/event-stream"

    def __init__(
        self, edge: Edge, response: OpenResponse, frames: Frames, *, after: int = -1, headers: Mapping[str, str]
    ) -> None:
        super().__init__(headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._edge = edge
        self._open = response
        self._frames = frames
        self._after = after

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
        stream, number, first_delta_at_us = self._open.stream, self._after + 1, None
        with self._open.watched() as changed:
            while True:
                changed.clear()
                while number < stream.next_sequence_number:
                    begin, number, chunk = number, *self._chunk(number)
                    async with asyncio.timeout(self._edge.settings.stall_seconds):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    self._edge.metrics.sent_events.inc(number - begin)
                    if first_delta_at_us is None and any(stream.type_of(n) == DELTA for n in range(begin, number)):
                        first_delta_at_us = now_us()
                if stream.finished:
                    break
                try:
                    async with asyncio.timeout(self._edge.settings.heartbeat_seconds):
                        await changed.wait()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
        self._edge.delivered(
            self._open, "sse", first_delta_at_us=first_delta_at_us, events=number - self._after - 1,
            resumed_after=self._after,
        )  # fmt: skip

    def _chunk(self, number: int) -> tuple[int, bytes]:
        """(next number, bytes of the events from this one on that are there, up to CHUNK_BYTES)."""
        parts: list[str] = []
        size = 0
        while number < self._open.stream.next_sequence_number and size < CHUNK_BYTES:
            for frame in self._frames(number):
                parts.append(frame)
                size += len(frame)
            number += 1
        return number, "".join(parts).encode()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
