"""One WebSocket's worth of responses, sans I/O: frames in, events and frames out. No await, no clock, no socket.

    create(state) / resume(state) / cancel(state)    what the caller wants
    connected() / disconnected(why)                  a socket is there; it is lost
    outgoing(now)                                    frames to send
    receive(frame) -> state                          the response that has something new for its reader
    broken                                           why this socket is not to be believed any more: connect again

Of each response the session knows the last number that it has seen. What comes again is dropped; a number too far on
means that something was lost, so the socket is given up and the response resumed behind what was seen. A server that
goes on like that ends as a ProtocolError, never as tokens in a wrong order.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from itertools import count

from headrace_client.errors import CreateUncertain, HeadraceError, InvalidRequest, ProtocolError, RequestRefused
from headrace_client.response_state import Limits, Phase, ResponseState
from headrace_client.stream_events import (
    Garbage,
    RateLimitsUpdated,
    ResponseCreated,
    ResponseEnd,
    ResponseEvent,
    ServerError,
    Unknown,
    parse_event,
)

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Session:
    """State of one connection that is made again when it is lost. Owned by one thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connected = False
        self._numbers = count(1)
        self._unsent: dict[ResponseState, None] = {}
        self._unanswered: dict[str, ResponseState] = {}  # by the event_id of the create
        self._open: dict[str, ResponseState] = {}  # by response id
        self._cancels_refused: dict[ResponseState, None] = {}
        self._owed: dict[ResponseState, None] = {}  # cancels of what was abandoned without a socket
        self._frames: deque[str] = deque()
        self._setbacks = 0
        self.broken: str | None = None
        self.progressed = False  # something new has come since the last `connected`

    @property
    def states(self) -> Iterator[ResponseState]:
        """All that have not ended."""
        yield from (*self._unsent, *self._unanswered.values(), *self._open.values())

    @property
    def has_work(self) -> bool:
        """A socket is needed."""
        return bool(self._unsent or self._unanswered or self._open or self._owed)

    @property
    def has_outgoing(self) -> bool:
        return self._connected and bool(self._frames or self._unsent)

    def create(self, state: ResponseState) -> None:
        """Begin this response, as soon as there is a socket."""
        self._unsent[state] = None

    def resume(self, state: ResponseState) -> None:
        """Go on with a response behind what it has seen. It needs its id. Raises InvalidRequest if it is open here."""
        assert state.response_id is not None
        if state.response_id in self._open:
            raise InvalidRequest(f"{state.response_id} is open in this stream already: it has one reader")
        state.phase = Phase.OPEN
        self._open[state.response_id] = state
        if self._connected:
            self._ask_again(state)

    def cancel(self, state: ResponseState) -> None:
        """Ask for its end, now or when it can be asked for, and again on every new socket."""
        state.cancelled = True
        if self._connected and state.phase is Phase.OPEN:
            self._ask("response.cancel", state)

    def abandon(self, state: ResponseState, error: HeadraceError) -> None:
        """Nobody will read it: it ends here with this error, and on the server with a cancel, as soon as one can go."""
        if state.phase is Phase.ENDED:
            return
        if state.phase is Phase.OPEN:
            self.drop(state)
            if self._connected:
                self._ask("response.cancel", state)
            else:
                self._owed[state] = None
        self._unsent.pop(state, None)
        state.fail(error)

    def drop(self, state: ResponseState) -> None:
        """It is no longer this session's: what comes for it is ignored."""
        self._unsent.pop(state, None)
        if state.response_id is not None and self._open.get(state.response_id) is state:
            del self._open[state.response_id]
        for event_id, other in list(self._unanswered.items()):
            if other is state:
                del self._unanswered[event_id]

    def connected(self) -> None:
        """A new socket: everything unfinished is asked for on it."""
        self._connected, self.broken, self.progressed = True, None, False
        self._frames.clear()
        for state in self._open.values():
            self._ask_again(state)
        for state in self._owed:
            self._ask("response.cancel", state)
        self._owed.clear()

    def disconnected(self, why: str) -> None:
        """The socket is gone, and may have taken creates along."""
        self._connected = False
        unanswered, self._unanswered = list(self._unanswered.values()), {}
        for state in unanswered:
            if state.phase is Phase.ENDED:  # abandoned
                continue
            if state.again:
                state.phase = Phase.UNSENT
                self._unsent[state] = None
            else:
                state.fail(CreateUncertain(f"{why}, and the request was not acknowledged before: it may run or not"))

    def fail_all(self, error: HeadraceError) -> None:
        """There will be no socket."""
        states = list(self.states)
        self._unsent.clear()
        self._unanswered.clear()
        self._open.clear()
        self._owed.clear()
        for state in states:
            state.fail(error)

    def cancel_again(self) -> None:
        """Ask once more for the cancels that the server could not take. Call it about once a second."""
        states, self._cancels_refused = self._cancels_refused, {}
        for state in states:
            self.cancel(state)

    def overdue(self, now: float) -> bool:
        """A create has had no answer for longer than any gateway takes: this socket is not to be believed."""
        return any(now - state.sent_at > self._limits.answer_s for state in self._unanswered.values())

    def outgoing(self, now: float) -> list[str]:
        """Frames to send on this socket, in this order. Handed out is sent: the socket may have taken them."""
        for state in self._unsent:
            event_id = f"create-{next(self._numbers)}"
            state.phase, state.sent_at = Phase.UNANSWERED, now
            self._unanswered[event_id] = state
            self._frames.append(_dump({"type": "response.create", **(state.body or {}), "event_id": event_id}))
        self._unsent.clear()
        frames = list(self._frames)
        self._frames.clear()
        return frames

    def full(self, state: ResponseState) -> bool:
        """Its reader is behind: no more of it should be received."""
        return len(state.buffer) >= self._limits.buffer_events or state.buffered_chars >= self._limits.buffer_chars

    def receive(self, frame: str | bytes) -> ResponseState | None:
        """The response that this frame has brought something for; None if nobody need be told."""
        if self.broken is not None:
            return None
        try:
            content = json.loads(frame)
            if type(content) is not dict:
                raise Garbage(f"a frame that is no JSON object: {frame!r:.200}")
            event = parse_event(content)
        except (Garbage, ValueError, RecursionError) as error:
            self._garbage(str(error))
            return None
        if isinstance(event, ResponseEvent):
            state = self._open.get(event.response_id)
            if state is None and isinstance(event, ResponseCreated):
                state = self._acknowledged(event, content.get("event_id"))
            return None if state is None else self._take(state, event, event.sequence_number, len(frame))
        if isinstance(event, ServerError):
            return self._refused(event)
        if isinstance(event, RateLimitsUpdated):
            return self._note(event, len(frame))
        if isinstance(event, Unknown) and event.response_id is not None and event.sequence_number is not None:
            state = self._open.get(event.response_id)
            return None if state is None else self._take(state, None, event.sequence_number, 0)
        return None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _take(self, state: ResponseState, event: ResponseEvent | None, number: int, chars: int) -> ResponseState | None:
        expected = state.seen + 1
        if number != expected:
            return None if number < expected else self._gap(state, number)
        state.seen = number
        state.setbacks = self._setbacks = 0
        self.progressed = True
        if event is None:
            return None
        state.buffer.append(event)
        state.buffered_chars += chars
        if isinstance(event, ResponseEnd):
            state.phase = Phase.ENDED
            del self._open[event.response_id]
        return state

    def _gap(self, state: ResponseState, number: int) -> ResponseState | None:
        state.setbacks += 1
        what = f"{state.response_id} went on with event {number} behind {state.seen}"
        if state.setbacks > self._limits.most_setbacks:
            self.drop(state)
            state.fail(ProtocolError(f"{what}, on {state.setbacks} connections in a row: this server loses events"))
            return state
        self.broken = what
        return None

    def _garbage(self, what: str) -> None:
        self._setbacks += 1
        self.broken = what
        if self._setbacks > self._limits.most_setbacks:
            self.broken = f"{what}, or the like, on {self._setbacks} connections in a row"

    @property
    def hopeless(self) -> ProtocolError | None:
        """The server has sent nothing but garbage on one socket after the other."""
        if self._setbacks <= self._limits.most_setbacks:
            return None
        return ProtocolError(f"this is no Headrace gateway: {self.broken}")

    def _acknowledged(self, event: ResponseCreated, event_id: object) -> ResponseState | None:
        state = self._unanswered.pop(event_id, None) if isinstance(event_id, str) else None
        if state is None:
            return None
        state.response_id = event.response_id
        if state.cancelled or state.phase is Phase.ENDED:
            self._ask("response.cancel", state)
        if state.phase is Phase.ENDED:  # abandoned
            return None
        state.phase = Phase.OPEN
        self._open[event.response_id] = state
        return state

    def _refused(self, error: ServerError) -> ResponseState | None:
        event_id = error.event_id or ""
        state = self._unanswered.pop(event_id, None)
        if state is None:
            verb, _, response_id = event_id.partition("-")
            state = self._open.get(response_id)
            if state is None:
                return None
            if verb == "cancel":
                if error.status >= 500:  # else it comes too late
                    self._cancels_refused[state] = None
                return None
            if error.status >= 500:  # the log does not answer, say: as good as a lost connection
                return self._unavailable(state, error)
            self.drop(state)
        state.fail(_refusal(error))
        return state

    def _unavailable(self, state: ResponseState, error: ServerError) -> ResponseState | None:
        state.setbacks += 1
        if state.setbacks > self._limits.most_setbacks:
            self.drop(state)
            state.fail(_refusal(error))
            return state
        self.broken = f"{state.response_id} can't be resumed now: {error.message}"
        return None

    def _note(self, event: RateLimitsUpdated, chars: int) -> ResponseState | None:
        state = self._open.get(event.response_id)
        if state is not None:
            state.buffer.append(event)
            state.buffered_chars += chars
        return state

    def _ask_again(self, state: ResponseState) -> None:
        self._ask("response.resume", state, starting_after=state.seen)
        if state.cancelled:
            self._ask("response.cancel", state)

    def _ask(self, kind: str, state: ResponseState, **more: int) -> None:
        """The event_id says what was asked and of whom: `_refused` reads it, and nobody has to remember."""
        event_id = f"{kind.removeprefix('response.')}-{state.response_id}"
        self._frames.append(_dump({"type": kind, "response_id": state.response_id, **more, "event_id": event_id}))


def _refusal(error: ServerError) -> RequestRefused:
    return RequestRefused(error.message, status=error.status, type=error.type, code=error.code, param=error.param)
