"""The shell around a session: WebSocket /v1/responses.

One task reads messages, one sends frames, one watches the pace, and each command runs by itself, so that a slow
look-up holds up nothing else. A disconnect ends them and nothing more: the responses go on, and any gateway
can resume them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from eventlog.clock import now_us
from gateway.auth import SUBPROTOCOL, authenticate, websocket_key
from gateway.edge import Edge
from gateway.errors import GatewayError, Overloaded
from gateway.open_response import OpenResponse
from gateway.session import Cancel, Command, Create, Cursor, Resume, Session
from gateway.websocket_protocol import abort, send_frames
from schemas.headers import TRACEPARENT

SLOW_CLIENT = 3008
SERVICE_RESTART = 1012
MAX_COMMANDS = 32  # at work at once for one socket; past it, its messages wait in the kernel
MAX_REPLIES = 256  # errors and pongs that it has not taken, likewise


async def websocket_responses(websocket: WebSocket) -> None:
    """The endpoint: authenticates before the upgrade (401), then speaks until either side closes."""
    edge: Edge = websocket.app.state.edge
    offered = websocket.scope.get("subprotocols", [])
    try:
        tenant = authenticate(edge.registry(), websocket_key(websocket.headers, websocket.query_params, offered))
    except GatewayError as error:
        await websocket.send_denial_response(JSONResponse(error.body(None), error.status, headers=error.headers()))
        return
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    edge.metrics.sockets.inc()
    try:
        await _Socket(edge, websocket, tenant.tenant).run()
    finally:
        edge.metrics.sockets.dec()


class _Socket:
    """One open connection."""

    def __init__(self, edge: Edge, websocket: WebSocket, tenant: str) -> None:
        self._edge = edge
        self._websocket = websocket
        self._tenant = tenant
        self._session = Session()
        self._more = asyncio.Event()
        self._drained = asyncio.Event()
        self._blocked = False  # in a send that the connection does not take
        self._taken = 0  # frames
        self._caught_up = 0  # times that there was nothing left to send
        self._watching: dict[Cursor, tuple[OpenResponse, Callable[[], None]]] = {}
        self._commands: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_COMMANDS)

    async def run(self) -> None:
        reading = asyncio.create_task(self._read())
        sending = asyncio.create_task(self._send())
        pacing = asyncio.create_task(self._pace())
        stopping = asyncio.create_task(self._edge.stopping.wait())
        tasks: set[asyncio.Task[Any]] = {reading, sending, pacing, stopping}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks | self._commands:
                task.cancel()
            await asyncio.gather(*tasks, *self._commands, return_exceptions=True)
            for response, wake in self._watching.values():
                response.watchers.pop(wake, None)
        for task in done:
            task.result()  # a fault of ours must not pass for a disconnect
        if pacing in done:
            self._edge.metrics.slow_clients.inc()
            await self._close(SLOW_CLIENT, self._edge.settings.stall_seconds)
        elif stopping in done:
            await self._close(SERVICE_RESTART, self._edge.settings.stop_seconds)

    async def _close(self, code: int, within_seconds: float) -> None:
        """Close behind what the connection has taken, or drop one that does not take even that."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._websocket.close(code, self._session.resume_cursor())
        except TimeoutError:
            await abort(self._websocket)
        except (WebSocketDisconnect, RuntimeError):  # it has gone, or has closed by itself
            return

    async def _read(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text, data = message.get("text"), message.get("bytes")
            command = self._session.receive(data or b"" if text is None else text)
            self._wake()
            if self._session.waiting_replies >= MAX_REPLIES:
                self._drained.clear()
                await self._drained.wait()
            if command is not None:
                await self._room.acquire()
                task = asyncio.create_task(self._obey(command))
                self._commands.add(task)
                task.add_done_callback(self._obeyed)

    def _obeyed(self, task: asyncio.Task[None]) -> None:
        self._commands.discard(task)
        self._room.release()

    async def _obey(self, command: Command) -> None:
        response_id = None if isinstance(command, Create) else command.response_id
        try:
            match command:
                case Create():
                    await self._create(command)
                case Resume():
                    self._check_room()
                    response = await self._edge.responses.find(self._tenant, command.response_id)
                    self._follow(response, command.starting_after, command.event_id)
                case Cancel():
                    response = await self._edge.responses.find(self._tenant, command.response_id)
                    await self._edge.responses.cancel(response)
        except GatewayError as error:
            self._session.reply_error(error, command.event_id, response_id)
        self._wake()

    async def _create(self, command: Create) -> None:
        self._check_room()
        response = await self._edge.responses.create(
            self._tenant, command.request, received_at_us=now_us(), traceparent=self._websocket.headers.get(TRACEPARENT)
        )
        self._follow(response, -1, command.event_id)

    def _check_room(self) -> None:
        most = self._edge.settings.max_responses_per_socket
        if self._session.open_count >= most:
            raise Overloaded(f"this socket has {most} unfinished responses, its limit", code="too_many_responses")

    def _follow(self, response: OpenResponse, after: int, event_id: str | None) -> None:
        cursor = self._session.open(response.stream, after=after, event_id=event_id)
        if cursor.finished:
            return
        wake = partial(self._grown, cursor)
        response.watchers[wake] = None
        self._watching[cursor] = response, wake

    def _grown(self, cursor: Cursor) -> None:
        self._session.ready(cursor)
        self._wake()

    def _wake(self) -> None:
        self._more.set()

    async def _pace(self) -> None:
        """Ends when the client is too slow: over its limit for a whole grace without gaining on what comes, or taking
        nothing at all for long. A burst puts every client behind for a moment: what counts is who does not catch up.
        """
        settings = self._edge.settings
        backlog, caught_up, taken, stalled_seconds = 0, 0, 0, 0.0
        while stalled_seconds < settings.stall_seconds:
            await asyncio.sleep(settings.slow_grace_seconds)
            before, backlog = backlog if caught_up == self._caught_up else 0, self._backlog()
            if 0 < before <= backlog:
                return
            stalled = self._blocked and taken == self._taken
            stalled_seconds = stalled_seconds + settings.slow_grace_seconds if stalled else 0.0
            caught_up, taken = self._caught_up, self._taken

    def _backlog(self) -> int:
        """Bytes that a connection which takes no more is behind, or 0 while that is within its limits."""
        if not self._blocked:
            return 0
        events, size = self._session.behind()
        settings = self._edge.settings
        return size if events > settings.max_unsent_events or size > settings.max_unsent_bytes else 0

    async def _send(self) -> None:
        while True:
            frames = self._session.next_frames()
            if not frames:
                self._more.clear()
                self._drained.set()
                self._caught_up += 1
                await self._more.wait()
                continue
            self._blocked = True
            try:
                await send_frames(self._websocket, frames)
            except WebSocketDisconnect:
                return
            self._blocked = False
            self._taken += 1
            self._edge.metrics.sent_events.inc(len(frames))
            for cursor in self._session.sent(now_us()):
                self._finished(cursor)
            await asyncio.sleep(0)  # other sockets have their turn

    def _finished(self, cursor: Cursor) -> None:
        response, wake = self._watching.pop(cursor)
        response.watchers.pop(wake, None)
        self._edge.delivered(
            response, "websocket", first_delta_at_us=cursor.first_delta_at_us, events=cursor.events,
            resumed_after=cursor.resumed_after,
        )  # fmt: skip
