"""The shell around a session: WebSocket /v1/responses.

Three tasks a socket: one reads messages, one sends frames, and each command runs by itself, so that a slow look-up
holds up nothing else. A disconnect ends them and nothing more: the responses go on, and can be resumed anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from eventlog.clock import now_us
from gateway.auth import SUBPROTOCOL, authenticate, websocket_key
from gateway.edge import Edge
from gateway.errors import GatewayError, Overloaded
from gateway.open_response import OpenResponse
from gateway.session import Cancel, Command, Create, Cursor, Resume, Session

SLOW_CLIENT = 3008
SERVICE_RESTART = 1012
MAX_COMMANDS = 32  # at work at once for one socket; past it, its messages wait in the kernel
FRAMES_PER_TURN = 64  # before other sockets have their turn


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
        self._too_slow = asyncio.Event()
        self._blocked = False
        self._watching: dict[Cursor, tuple[OpenResponse, Callable[[], None]]] = {}
        self._commands: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_COMMANDS)

    async def run(self) -> None:
        reading = asyncio.create_task(self._read())
        sending = asyncio.create_task(self._send())
        slow = asyncio.create_task(self._too_slow.wait())
        stopping = asyncio.create_task(self._edge.stopping.wait())
        tasks = {reading, sending, slow, stopping}
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
        if self._too_slow.is_set():
            self._edge.metrics.slow_clients.inc()
            await self._close(SLOW_CLIENT, self._edge.settings.stall_seconds)
        elif self._edge.stopping.is_set() and reading not in done:
            await self._close(SERVICE_RESTART, self._edge.settings.stop_seconds)

    async def _close(self, code: int, within_seconds: float) -> None:
        """Close behind what the connection has taken; a client that takes nothing is left to the transport."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._websocket.close(code, self._session.resume_cursor())
        except (TimeoutError, WebSocketDisconnect, RuntimeError):
            return

    async def _read(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text, data = message.get("text"), message.get("bytes")
            command = self._session.receive(data or b"" if text is None else text)
            self._wake()
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
                    response = await self._edge.responses.find(self._tenant, command.response_id)
                    self._follow(response, command.starting_after, command.event_id)
                case Cancel():
                    response = await self._edge.responses.find(self._tenant, command.response_id)
                    await self._edge.responses.cancel(response)
        except GatewayError as error:
            self._session.reply_error(error, command.event_id, response_id)
        self._wake()

    async def _create(self, command: Create) -> None:
        most = self._edge.settings.max_responses_per_socket
        if self._session.open_count >= most:
            raise Overloaded(f"this socket has {most} unfinished responses, its limit", code="too_many_responses")
        response = await self._edge.responses.create(self._tenant, command.request, received_at_us=now_us())
        self._follow(response, -1, command.event_id)

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
        if self._blocked:
            events, size = self._session.behind()
            settings = self._edge.settings
            if events > settings.max_unsent_events or size > settings.max_unsent_bytes:
                self._too_slow.set()

    async def _send(self) -> None:
        turn = 0
        while True:
            frame = self._session.next_frame()
            if frame is None:
                self._more.clear()
                turn = 0
                await self._more.wait()
                continue
            if not await self._hand_over(frame):
                return
            finished = self._session.sent(now_us())
            if finished is not None:
                self._finished(finished)
            turn += 1
            if turn % FRAMES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _hand_over(self, frame: str) -> bool:
        """Give the connection a frame; False when it has gone. One that takes nothing for long is too slow."""
        self._blocked = True
        try:
            async with asyncio.timeout(self._edge.settings.stall_seconds):
                await self._websocket.send_text(frame)
        except TimeoutError:
            self._too_slow.set()
            return False
        except WebSocketDisconnect:
            return False
        finally:
            self._blocked = False
        return True

    def _finished(self, cursor: Cursor) -> None:
        response, wake = self._watching.pop(cursor)
        response.watchers.pop(wake, None)
        self._edge.delivered(
            cursor.stream.request, "websocket", first_delta_at_us=cursor.first_delta_at_us, events=cursor.events,
            resumed_after=cursor.resumed_after,
        )  # fmt: skip
