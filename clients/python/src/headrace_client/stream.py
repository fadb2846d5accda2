"""Stream: responses over WebSocket, with asyncio. Many on one socket; lost connections are made again and resumed."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

from headrace_client.answer import Answer, answer_of
from headrace_client.connection import Connection
from headrace_client.errors import Closed, HeadraceError, InvalidRequest, ResponseTimeout
from headrace_client.response_state import Phase, ResponseState
from headrace_client.stream_events import OutputTextDelta, ResponseEnd, ResponseEvent, StreamEvent
from headrace_client.stream_settings import StreamSettings

MOST_REQUEST_BYTES = 4 * 1024 * 1024  # what a gateway takes


class Stream:
    """A connection to a gateway: `async with Stream(url, api_key=...) as stream`. Belongs to one event loop.

    Further arguments are those of StreamSettings.
    """

    def __init__(self, url: str, *, api_key: str, **settings: Any) -> None:
        self._settings = StreamSettings(url, api_key, **settings)
        self._settings.endpoint()  # raises for what is no address
        self._settings.authorization()  # and for what is no key
        self._main: Connection | None = None
        self._responses: dict[ResponseState, Response] = {}
        self._alone: set[Connection] = set()

    async def __aenter__(self) -> Self:
        """Connects. Raises GatewayRefused (the API key, say) and GatewayUnreachable."""
        main = Connection(self._settings, moved=self._moved, lasting=True)
        await main.open()
        self._main = main
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create(self, *, timeout: float | None = None, retry: bool = False, **request: Any) -> Response:
        """Ask for a response; returns when the server has acknowledged it.

        request: the fields of `response.create`: model, input, instructions, max_output_tokens, temperature, ...
        timeout: seconds for the whole response; past it ResponseTimeout is raised and the response cancelled.
        retry: if the connection is lost before the acknowledgement, ask again. The request may then run twice (there
            is no idempotency key in this protocol), and one of the two for nobody.

        Raises InvalidRequest, RequestRefused, CreateUncertain (see `retry`), GatewayUnreachable, ResponseTimeout and
        Closed. If the caller's task is cancelled meanwhile, so is the response.
        """
        _check(request)
        response = self._begin(ResponseState(dict(request), again=retry), timeout)
        await response._acknowledged()
        return response

    async def resume(self, response_id: str, *, starting_after: int = -1, timeout: float | None = None) -> Response:
        """Go on with a response that was begun elsewhere (or before a restart), behind this sequence number.

        Returns at once; reading it raises RequestRefused if there is no such response (404). Raises InvalidRequest if
        this stream reads it already.
        """
        state = ResponseState(None, response_id=response_id, seen=starting_after, phase=Phase.OPEN)
        return self._begin(state, timeout)

    async def close(self) -> None:
        """Readers get Closed; the responses themselves go on, and can be resumed."""
        main, self._main = self._main, None
        for connection in (main, *self._alone):
            if connection is not None:
                await connection.close()
        for response in list(self._responses.values()):
            response._state.fail(Closed("the stream is closed"))
        self._responses.clear()
        self._alone.clear()

    def _begin(self, state: ResponseState, timeout: float | None) -> Response:
        if self._main is None:
            raise Closed("the stream is not open: use it as `async with Stream(...) as stream`")
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        response = Response(self, state, self._main, timeout, deadline)
        if state.phase is Phase.OPEN:
            self._main.session.resume(state)
        else:
            self._main.session.create(state)
        self._responses[state] = response
        self._main.changed()
        return response

    def _moved(self, state: ResponseState) -> None:
        """It has left its socket, because its reader is slow."""
        response = self._responses.get(state)
        if response is not None:
            response._connection = None

    def _go_on_alone(self, state: ResponseState) -> Connection:
        """A socket for this response only."""
        connection = Connection(self._settings, moved=self._moved, lasting=False)
        connection.session.resume(state)
        connection.start()
        self._alone = {other for other in self._alone if other.session.has_work} | {connection}
        return connection

    def _over(self, state: ResponseState) -> None:
        self._responses.pop(state, None)


class Response:
    """One response: iterate over it for its events. For one reader.

    Events come in the order of their sequence numbers, each once, over as many connections as it takes. Iterating
    raises what ended it other than a terminal event: RequestRefused, CreateUncertain, ResponseTimeout, ProtocolError,
    GatewayUnreachable, GatewayRefused, Closed.
    """

    def __init__(
        self, stream: Stream, state: ResponseState, connection: Connection, timeout: float | None,
        deadline: float | None,
    ) -> None:  # fmt: skip
        self._stream = stream
        self._state = state
        self._connection: Connection | None = connection
        self._timeout = timeout
        self._deadline = deadline
        self._news = asyncio.Event()
        self._taken: deque[StreamEvent] = deque()
        state.wake = self._news.set
        self.last_sequence_number = state.seen
        self.end: ResponseEnd | None = None

    @property
    def response_id(self) -> str:
        """Known from the acknowledgement on."""
        return self._state.response_id or ""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if not self._taken:
            self._taken.extend(await self.take())
            if not self._taken:
                raise StopAsyncIteration
        return self.read(self._taken.popleft())

    async def text_deltas(self) -> AsyncIterator[str]:
        """The text as it comes."""
        async for event in self:
            if isinstance(event, OutputTextDelta):
                yield event.delta

    async def answer(self) -> Answer:
        """The whole answer: reads what is left.

        Raises what iterating raises; RequestRefused and AnswerFailed when the response failed.
        """
        async for _ in self:
            pass
        assert self.end is not None  # iterating ends behind it, or raises
        return answer_of(self.end)

    async def cancel(self) -> None:
        """Ask for its end. It goes on to its last event, `response.cancelled` if the cancel was in time."""
        if self._state.phase is Phase.ENDED:
            return
        if self._connection is None:
            self._connection = self._stream._go_on_alone(self._state)
        self._connection.session.cancel(self._state)
        self._connection.changed()

    async def take(self) -> list[StreamEvent]:
        """All events that have come since, at least one; none: it is over. For those who want few wake-ups."""
        state = self._state
        while not state.buffer:
            if state.error is not None:
                self._stream._over(state)
                raise state.error.with_traceback(None)
            if state.phase is Phase.ENDED:
                self._stream._over(state)
                return []
            if self._connection is None:
                self._connection = self._stream._go_on_alone(state)
            await self._wait(self._connection)
        events = state.take()
        if self._connection is not None:
            self._connection.changed()
        return events

    async def _acknowledged(self) -> None:
        state = self._state
        try:
            while state.phase in (Phase.UNSENT, Phase.UNANSWERED):
                assert self._connection is not None
                await self._wait(self._connection)
        except asyncio.CancelledError:
            self._abandon(Closed("who asked for it was cancelled"))
            raise
        if state.error is not None:
            self._stream._over(state)
            raise state.error

    async def _wait(self, connection: Connection) -> None:
        state = self._state
        self._news.clear()
        state.waiting = True
        connection.changed()
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._news.wait()
        except TimeoutError:
            what = self.response_id or "the response"
            self._abandon(ResponseTimeout(f"{what} took more than {self._timeout:g} s"))
        finally:
            state.waiting = False

    def _abandon(self, error: HeadraceError) -> None:
        connection = self._connection or self._stream._go_on_alone(self._state)
        connection.session.abandon(self._state, error)
        connection.changed()

    def read(self, event: StreamEvent) -> StreamEvent:
        """For those who `take`: note that this event has been read."""
        if isinstance(event, ResponseEvent):
            self.last_sequence_number = event.sequence_number
            if isinstance(event, ResponseEnd):
                self.end = event
        return event


def _check(request: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for what is no request, or one that no gateway takes."""
    if own := request.keys() & {"type", "event_id"}:
        raise InvalidRequest(f"{sorted(own)} are set here")
    try:
        size = len(json.dumps(request, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the request can't be written as JSON: {error}") from error
    if size > MOST_REQUEST_BYTES:
        raise InvalidRequest(f"the request has {size} bytes, more than the {MOST_REQUEST_BYTES} that a gateway takes")
