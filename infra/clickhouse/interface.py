"""The HTTP interface as what the sink serves beside its work."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette

from infra.clickhouse.engine import Limits, ReadOnlyEngine
from infra.clickhouse.http import QueryDesk, create_app
from infra.errors import PortTaken, PortUnusable
from streams.sink.clickhouse import EmbeddedClickHouse

_SETTING = "HEADRACE_CLICKHOUSE_PORT"


@dataclass(frozen=True, slots=True)
class HttpInterface:
    """Listens on host and port (0: any free one) for as long as its block runs. `listening` hears the real port.

    Raises PortTaken, PortUnusable.
    """

    host: str = "127.0.0.1"
    port: int = 8123
    limits: Limits = field(default_factory=Limits)
    listening: Callable[[int], None] | None = None

    @asynccontextmanager
    async def __call__(self, address: EmbeddedClickHouse) -> AsyncIterator[None]:
        with self._listen() as listener:
            engine = await asyncio.to_thread(ReadOnlyEngine, address.path, self.limits)
            app = create_app(QueryDesk(engine), only_loopback_names=_is_loopback(self.host))
            up = asyncio.Event()
            server = GuestServer(_config(app), up.set)
            serving = asyncio.create_task(server.serve([listener]))
            try:
                await up.wait()
                if self.listening is not None:
                    self.listening(listener.getsockname()[1])
                yield
            finally:
                server.should_exit = True
                await asyncio.to_thread(engine.interrupt)
                await serving
                await asyncio.to_thread(engine.close)

    def _listen(self) -> socket.socket:
        try:
            return socket.create_server((self.host, self.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(self.host, self.port, _SETTING) from error
            raise PortUnusable(self.host, self.port, _SETTING, error.strerror or str(error)) from error


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app, lifespan="off", log_config=None, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip


class GuestServer(uvicorn.Server):
    """A guest in somebody else's loop: signals belong to the host. `up` is called when it serves."""

    def __init__(self, config: uvicorn.Config, up: Callable[[], None]) -> None:
        super().__init__(config)
        self._up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._up()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
