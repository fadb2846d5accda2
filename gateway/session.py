"""One WebSocket, sans I/O: messages in, commands and frames out. No await, no clock, no socket.

    receive(message) -> command     what the client wants, for the shell to do; errors and pongs are answered here
    open(stream, ...)               a response begins to be sent: a cursor on its stream
    next_frames() / sent(now_us)    what goes out next; `sent` says that the connection has taken it
    behind()                        how much of what is live has not been taken: over the limit, the client is too slow
    resume_cursor()                 where a client that is closed now goes on

Events of a response carry `response_id` and a dense `sequence_number`. `rate_limits.updated`, `error` and `pong`
belong to the connection, not to the response's log: they have no sequence number, and a resume does not repeat them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from gateway.errors import GatewayError, InvalidRequest
from gateway.fields import Fields, parse_json_object, show
from gateway.requests import ClientRequest, parse_response_create
from gateway.response_stream import QUEUED, ResponseStream, dump_json
from schemas.events import RequestAdmitted

FRAME_BYTES = 320  # an event without its text, about
BURST_EVENTS = 16  # of one response, before the next one has its turn
MOST_FRAMES = 128  # handed out at once
MOST_CHARS = 64 * 1024
_MESSAGES = "response.create, response.cancel, response.resume or ping"


@dataclass(frozen=True, slots=True)
class Create:
    """Answer this request."""

    request: ClientRequest
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this response."""

    response_id: str
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Resume:
    """Send this response from the event behind `starting_after` on."""

    response_id: str
    starting_after: int
    event_id: str | None


Command = Create | Cancel | Resume


@dataclass(eq=False, slots=True)
class Cursor:
    """How far one response has been sent on this connection.

    next: sequence number that goes out next. sent: the first one that the connection has not taken.
    resumed_after: -1 for a fresh response.
    live_from: what was there when the cursor was opened is history: being behind in it is not being slow.
    """

    stream: ResponseStream
    next: int
    sent: int
    resumed_after: int
    live_from: int
    event_id: str | None
    waiting: bool = False  # in the session's queue
    first_delta_at_us: int | None = None

    @property
    def finished(self) -> bool:
        """The connection has taken the last event."""
        return self.stream.finished and self.sent >= self.stream.next_sequence_number

    @property
    def events(self) -> int:
        """How many of its events the connection has taken."""
        return self.sent - self.resumed_after - 1


class Session:
    """State of one connection."""

    def __init__(self) -> None:
        self._replies: deque[str] = deque()
        self._ready: deque[Cursor] = deque()
        self._cursors: dict[Cursor, None] = {}
        self._burst = 0
        self._handed_out: dict[Cursor, None] = {}

    def receive(self, message: str | bytes) -> Command | None:
        """The command in a message; None when it is dealt with, or wrong: the client is told and the socket stays."""
        event_id: str | None = None
        try:
            if isinstance(message, bytes):
                raise InvalidRequest("binary messages are not spoken here, send JSON as text", code="invalid_json")
            body = parse_json_object(message)
            event_id = Fields(body).text("event_id")
            return self._command(body, event_id)
        except GatewayError as error:
            self.reply_error(error, event_id)
            return None

    def reply_error(self, error: GatewayError, event_id: str | None, response_id: str | None = None) -> None:
        """Tell the client that what it asked for was not done."""
        event: dict[str, Any] = {"type": "error", "status": error.status, **error.body(None), "event_id": event_id}
        if response_id is not None:
            event["response_id"] = response_id
        self._replies.append(dump_json(event))

    def open(self, stream: ResponseStream, *, after: int = -1, event_id: str | None = None) -> Cursor:
        """Begin to send a response behind this sequence number.

        Raises InvalidRequest for a number past the end of a response that has finished.
        """
        check_starting_after(stream, after)
        cursor = Cursor(stream, after + 1, after + 1, after, stream.next_sequence_number, event_id)
        if not cursor.finished:
            self._cursors[cursor] = None
            self.ready(cursor)
        return cursor

    def ready(self, cursor: Cursor) -> None:
        """The cursor's stream has grown."""
        if not cursor.waiting:
            cursor.waiting = True
            self._ready.append(cursor)

    @property
    def open_count(self) -> int:
        """Responses that are not sent to their end."""
        return len(self._cursors)

    @property
    def waiting_replies(self) -> int:
        """Errors, pongs and the like that are not sent: whoever reads messages waits while there are many."""
        return len(self._replies)

    def next_frames(self) -> list[str]:
        """What goes out next, up to MOST_FRAMES; empty when all is sent. Ask again only after `sent`."""
        frames: list[str] = []
        chars = 0
        while len(frames) < MOST_FRAMES and chars < MOST_CHARS:
            frame = self._next_frame()
            if frame is None:
                break
            frames.append(frame)
            chars += len(frame)
        return frames

    def sent(self, now_us: int) -> list[Cursor]:
        """The connection has taken those frames. The cursors of which that was the end."""
        ended = []
        for cursor in self._handed_out:
            if cursor.first_delta_at_us is None:
                text = cursor.stream.chars_before(cursor.next) > cursor.stream.chars_before(cursor.sent)
                cursor.first_delta_at_us = now_us if text else None
            cursor.sent = cursor.next
            if cursor.finished:
                del self._cursors[cursor]
                ended.append(cursor)
        self._handed_out.clear()
        return ended

    def behind(self) -> tuple[int, int]:
        """(events, bytes) that are live and not taken by the connection, replies included."""
        events, size = len(self._replies), sum(map(len, self._replies))
        for cursor in self._cursors:
            start, end = max(cursor.sent, cursor.live_from), cursor.stream.next_sequence_number
            if start < end:
                events += end - start
                size += (end - start) * FRAME_BYTES
                size += cursor.stream.bytes_before(end) - cursor.stream.bytes_before(start)
        return events, size

    def resume_cursor(self) -> str:
        """JSON for a close frame's reason (at most 123 bytes): the oldest unfinished response, and how many there are.

        Of the others the client knows the numbers itself: it has seen them.
        """
        first = next(iter(self._cursors), None)
        if first is None:
            return ""
        place = {"response_id": first.stream.response_id, "starting_after": first.sent - 1}
        return dump_json({**place, "unfinished": len(self._cursors)})

    def _next_frame(self) -> str | None:
        if self._replies:
            return self._replies.popleft()
        while self._ready:
            cursor = self._ready[0]
            if cursor.next < cursor.stream.next_sequence_number:
                self._burst += 1
                if self._burst >= BURST_EVENTS:
                    self._ready.rotate(-1)
                    self._burst = 0
                return self._take(cursor)
            self._ready.popleft().waiting = False
            self._burst = 0
        return None

    def _take(self, cursor: Cursor) -> str:
        """The cursor's next event as JSON; what the connection adds to it stands behind it."""
        number, stream = cursor.next, cursor.stream
        frame = stream.frame(number)
        cursor.next += 1
        self._handed_out[cursor] = None
        if number == 0 and cursor.event_id is not None:
            return dump_json({**stream.event(0), "event_id": cursor.event_id})
        admitted = stream.log.admitted
        if number == 1 and admitted is not None and stream.type_of(number) == QUEUED:
            self._replies.append(dump_json(rate_limits(stream.response_id, admitted)))
        return frame

    def _command(self, body: dict[str, Any], event_id: str | None) -> Command | None:
        fields = Fields(body)
        match body.get("type"):
            case "response.create":
                own = {"type", "event_id"}
                request = parse_response_create({name: value for name, value in body.items() if name not in own})
                return Create(request, event_id)
            case "response.cancel":
                return Cancel(fields.required_text("response_id"), event_id)
            case "response.resume":
                after = fields.integer("starting_after", 32)
                return Resume(fields.required_text("response_id"), -1 if after is None else after, event_id)
            case "ping":
                self._replies.append(dump_json({"type": "pong", "event_id": event_id}))
                return None
            case other:
                raise InvalidRequest(f"type must be {_MESSAGES}, got {show(other)}", code="unknown_type", param="type")


def check_starting_after(stream: ResponseStream, after: int) -> None:
    """Raises InvalidRequest for a number that no event of this response has or will have."""
    last = stream.next_sequence_number - 1
    if after < -1 or (stream.finished and after > last):
        raise InvalidRequest(
            f"starting_after must be a sequence number of the response (the last is {last}) or -1, got {after}",
            param="starting_after",
        )


def rate_limits(response_id: str, admitted: RequestAdmitted) -> dict[str, Any]:
    """`rate_limits.updated`, in the shape of OpenAI's Realtime API."""
    rows = (
        ("requests", admitted.limit_requests, admitted.remaining_requests, admitted.reset_requests_ms),
        ("tokens", admitted.limit_tokens, admitted.remaining_tokens, admitted.reset_tokens_ms),
    )
    return {
        "type": "rate_limits.updated",
        "response_id": response_id,
        "rate_limits": [
            {"name": name, "limit": limit, "remaining": remaining, "reset_seconds": reset_ms / 1000}
            for name, limit, remaining, reset_ms in rows
        ],
    }
