"""Running a gateway: its parts started in order, watched, and stopped in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from eventlog.clock import monotonic
from eventlog.errors import LogUnreachable
from eventlog.producer import EventProducer
from eventlog.registry_reader import RegistryReader
from eventlog.telemetry import TelemetryWriter
from gateway.app import create_app
from gateway.edge import Edge
from gateway.log_backfill import LogBackfill
from gateway.metrics import GatewayMetrics
from gateway.readiness import Readiness
from gateway.responses import Responses
from gateway.settings import GatewaySettings
from gateway.telemetry import GatewayTelemetry
from gateway.websocket_protocol import FramesProtocol

SWEEP_SECONDS = 1.0


async def run(settings: GatewaySettings, *, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Serve until `stop` is set; `ready` is called when requests are taken.

    At a stop, open sockets are closed with 1012 and their resume cursor, streams end, and responses go on: any
    gateway can resume them. Raises OSError when the port is taken, and LogUnreachable when no broker answers at the
    start or a reader of the log has died.
    """
    listener = _listen(settings)
    metrics = GatewayMetrics()
    registry = RegistryReader(
        settings.profile, client_id=settings.gateway_id, unreadable=partial(metrics.unreadable, "registry")
    )
    producer = EventProducer(settings.profile, client_id=settings.gateway_id)
    backfill = LogBackfill(
        settings.profile, settings.topics, client_id=f"{settings.gateway_id}-backfill",
        unreadable=partial(metrics.unreadable, "backfill"),
    )  # fmt: skip
    responses = Responses(settings, producer, backfill, metrics)
    readiness = Readiness(settings.profile, client_id=f"{settings.gateway_id}-readiness")
    edge = Edge(
        settings, lambda: registry.registry, responses, producer, metrics, lambda: readiness.log_answers
    )  # fmt: skip
    telemetry = GatewayTelemetry(
        settings.gateway_id, metrics, TelemetryWriter(producer, metrics.dropped_reports.inc),
        every_seconds=settings.telemetry_seconds,
    )  # fmt: skip
    server = _Server(_config(settings, edge), ready)
    try:
        await asyncio.to_thread(registry.start)
        responses.tail.start()
        async with telemetry.reporting():
            await _serve(server, listener, edge, readiness, registry, stop)
    finally:
        listener.close()
        backfill.stop()
        await asyncio.to_thread(_close, responses, registry, producer)


async def _serve(
    server: _Server,
    listener: socket.socket,
    edge: Edge,
    readiness: Readiness,
    registry: RegistryReader,
    stop: asyncio.Event,
) -> None:
    """Until `stop`, or until a part ends by itself."""
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    checking = asyncio.create_task(readiness.run())
    watching = asyncio.create_task(_watch(edge.responses, registry))
    stopped = asyncio.create_task(stop.wait())
    tasks: set[asyncio.Task[Any]] = {serving, checking, watching, stopped}
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    edge.stopping.set()
    server.should_exit = True
    for task in (checking, watching, stopped):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done - {stopped}:
        task.result()


async def _watch(responses: Responses, registry: RegistryReader) -> None:
    """Sweep, and end with LogUnreachable when a reading thread has died: a supervisor starts the gateway again."""
    while True:
        failure = responses.tail.failure or registry.failure
        if failure is not None:
            raise LogUnreachable(f"a reader of the log has stopped: {failure}") from failure
        responses.sweep(monotonic())
        await asyncio.sleep(SWEEP_SECONDS)


def _close(responses: Responses, registry: RegistryReader, producer: EventProducer) -> None:
    responses.tail.close()
    registry.close()
    producer.close(2.0)


def _listen(settings: GatewaySettings) -> socket.socket:
    """A listening socket whose connections inherit the bounded send buffer."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is spelled out; with it each first token waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"the gateway can't listen on {settings.host}:{settings.port}: {error.strerror}"
        ) from error
    return listener


def _config(settings: GatewaySettings, edge: Edge) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(edge),
        ws=FramesProtocol,
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,  # frames of one token do not shrink, and each would cost a deflate
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",  # its info lines hold query strings, which may hold an API key
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.stop_seconds)),
    )


class _Server(uvicorn.Server):
    """uvicorn in a loop that is not its own: it leaves signals alone and says when it serves."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
