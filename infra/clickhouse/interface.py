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
        listener = self._listen()
        engine = await asyncio.to_thread(ReadOnlyEngine, address.path, self.limits)
        app = create_app(QueryDesk(engine), only_loopback_names=_is_loopback(self.host))
        server = _Server(
            uvicorn.Config(
                app, lifespan="off", log_config=None, log_level="warning", access_log=False,
                timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        serving = asyncio.create_task(server.serve([listener]))
        try:
            if self.listening is not None:
                self.listening(listener.getsockname()[1])
            yield
        finally:
            server.should_exit = True
            await serving
            await asyncio.to_thread(engine.close)

    def _listen(self) -> socket.socket:
        try:
            return socket.create_server((self.host, self.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(self.host, self.port, _SETTING) from error
            raise PortUnusable(self.host, self.port, _SETTING, error.strerror or str(error)) from error


class _Server(uvicorn.Server):
    """A guest in somebody else's loop: signals belong to the host."""

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
