"""The shell around a session: one WebSocket, made again when it is lost.

One task reads, one sends, one keeps watch. When a reader falls so far behind that its buffer is full, the socket is
read no further, and TCP holds the server back. If another response on the same socket has a reader that waits,
that would be unfair (and, for a program that reads one answer after the other, the end): then the full one leaves,
and goes on from its cursor on a socket of its own once its reader wants more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from headrace_client.clock import monotonic
from headrace_client.errors import Closed, GatewayRefused, GatewayUnreachable, HeadraceError
from headrace_client.response_state import ResponseState
from headrace_client.session import Session
from headrace_client.stream_settings import StreamSettings

_TICK_S = 1.0
_CLOSE_S = 1.0
_QUEUED_FRAMES = 64


class Connection:
    """Owned by one event loop. `moved` is told of responses that left because their readers are slow.

    lasting: keep the socket when there is nothing to do.
    """

    def __init__(self, settings: StreamSettings, *, moved: Callable[[ResponseState], None], lasting: bool) -> None:
        self.session = Session(settings.limits)
        self._settings = settings
        self._moved = moved
        self._lasting = lasting
        self._socket: ClientConnection | None = None
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._outgoing = asyncio.Event()
        self._received = 0
        self._held = False  # not reading, because a buffer is full
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect now, once. Raises GatewayRefused and GatewayUnreachable."""
        self._socket = await self._dial()
        self.start()

    def start(self) -> None:
        """Connect when there is something to do."""
        self._task = asyncio.create_task(self._run(), name="headrace-connection")

    def changed(self) -> None:
        """The session has been given something to do, or a reader has made room or waits."""
        self._work.set()
        self._outgoing.set()
        self._room.set()

    async def close(self) -> None:
        """Readers get Closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})  # however it ended, the other connections are to be closed too
        if self._socket is not None:  # opened, and never used
            await hang_up(self._socket)
        self.session.fail_all(Closed("the stream is closed"))

    async def _run(self) -> None:
        attempt = 0
        try:
            while True:
                socket, self._socket = self._socket, None
                if socket is None:
                    if not self.session.has_work:
                        if not self._lasting:
                            return
                        self._work.clear()
                        await self._work.wait()
                    try:
                        socket = await self._dial()
                    except GatewayRefused as error:
                        self.session.fail_all(error)
                        continue
                    except GatewayUnreachable as error:
                        attempt = await self._wait_or_give_up(attempt, error)
                        continue
                why = await self._converse(socket)
                if self.session.progressed:
                    attempt = 0
                self.session.disconnected(why)
                if (hopeless := self.session.hopeless) is not None:
                    self.session.fail_all(hopeless)
                elif self.session.has_work:
                    attempt = await self._wait_or_give_up(attempt, GatewayUnreachable(f"{self._settings.url}: {why}"))
        except Exception as error:  # a fault of ours: readers must not wait for ever
            self.session.fail_all(HeadraceError(f"the connection has ended: {error!r}"))
            raise

    async def _wait_or_give_up(self, attempt: int, error: GatewayUnreachable) -> int:
        """Pause before the next try; after the last one everything fails. The number of the next attempt."""
        delay = self._settings.reconnect.delay_s(attempt, random.random())
        if delay is None:
            self.session.fail_all(error)
            return 0
        await asyncio.sleep(delay)
        return attempt + 1

    async def _dial(self) -> ClientConnection:
        settings = self._settings
        try:
            return await connect(
                settings.endpoint(),
                additional_headers={**settings.headers, "Authorization": settings.authorization()},
                ssl=settings.tls,
                open_timeout=settings.connect_s,
                close_timeout=_CLOSE_S,
                max_size=settings.max_frame_bytes,
                max_queue=_QUEUED_FRAMES,
                compression=None,  # a frame for each token: it would cost more than it saves
                ping_interval=None,  # our own: a socket that we do not read can't be expected to answer
                proxy=settings.proxy,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            if status == 429 or status >= 500:
                raise GatewayUnreachable(f"{settings.url} answers {status}") from error
            raise GatewayRefused(
                f"{settings.url} refuses the connection with {status}: "
                + ("is the API key right?" if status == 401 else "is this the address of a gateway?"),
                status=status,
            ) from error
        except InvalidURI as error:
            raise GatewayRefused(f"{settings.url}: {error}", status=0) from error
        except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, EOFError) as error:
            raise GatewayUnreachable(f"{settings.url}: {str(error) or type(error).__name__}") from error

    async def _converse(self, socket: ClientConnection) -> str:
        """Until the socket is lost, given up or not needed any more: why."""
        self.session.connected()
        self._outgoing.set()
        tasks = [asyncio.create_task(work) for work in (self._read(socket), self._send(socket), self._watch(socket))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self._held = False
            await hang_up(socket)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, ConnectionClosed):
                raise end
        return next((end for end in ends if isinstance(end, str)), "the connection was lost")

    async def _read(self, socket: ClientConnection) -> str:
        session = self.session
        while True:
            state = session.receive(await socket.recv())
            self._received += 1
            if state is not None:
                if state.waiting:
                    state.wake()
                if session.full(state):
                    await self._make_room(state)
            elif session.broken is not None:
                return session.broken
            if session.has_outgoing:
                self._outgoing.set()
            if not self._lasting and not session.has_work:
                return "all is read"

    async def _make_room(self, state: ResponseState) -> None:
        """Wait for the reader of a full buffer, unless the reader of another one waits for the socket."""
        self._held = True
        while self.session.full(state) and state.error is None:
            if any(other.waiting for other in self.session.states if other is not state):
                self.session.drop(state)
                self._moved(state)
                break
            self._room.clear()
            await self._room.wait()
        self._held = False

    async def _send(self, socket: ClientConnection) -> str:
        while True:
            self._outgoing.clear()
            for frame in self.session.outgoing(monotonic()):
                await socket.send(frame)
            await self._outgoing.wait()

    async def _watch(self, socket: ClientConnection) -> str:
        quiet_s = 0.0
        while True:
            before = self._received
            await asyncio.sleep(_TICK_S)
            quiet_s = 0.0 if self._held or self._received != before else quiet_s + _TICK_S
            if self.session.overdue(monotonic()):
                return "the server does not answer"
            self.session.cancel_again()
            if self.session.has_outgoing:
                self._outgoing.set()
            if quiet_s >= self._settings.ping_s:
                try:
                    async with asyncio.timeout(self._settings.ping_s):
                        await (await socket.ping())
                except TimeoutError:
                    return "the server does not answer"
                quiet_s = 0.0


async def hang_up(socket: ClientConnection) -> None:
    """Say goodbye to a server that listens; drop one that does not, also when the stream is closed meanwhile."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await socket.close()
    except (TimeoutError, ConnectionClosed):
        pass
    finally:
        socket.transport.abort()  # nothing, if it is closed
