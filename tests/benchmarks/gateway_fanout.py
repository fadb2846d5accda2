"""Tokens a second from the log through one gateway to WebSocket clients, against a bare websockets server.

CLIENTS sockets with one response each. The token events of all of them are written to the log at once, and the clock
runs until every client has its last event. The baseline is a `websockets` server, in a process of its own like the
gateway, that sends the same frames to as many clients from memory: no log, no fold, no numbers to keep. The clients
are the same for both, and only count. Rounds are interleaved and medians compared.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path
from typing import Final

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame, Opcode

from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from gateway.service import run as run_gateway
from gateway.settings import GatewaySettings
from infra.runtime.ports import free_port
from schemas.codec import encode
from schemas.events import RequestSubmitted, TokenLogEvent
from schemas.headers import headers_of
from schemas.ids import partition_of
from schemas.topics import tokens_topic
from tests.benchmarks.row import BenchRow
from tests.brokers import running_broker
from tests.contract.gateway_world import TOPICS, FakeUpstream, Step, register_model, register_tenant
from tests.gateway_events import admitted, finished, started, tokens

CLIENTS: Final = 32
TOKENS: Final = 1000
ROUNDS: Final = 5
BAR: Final = 0.4
LAST: Final = b'"type":"response.completed"'
_SPAWN = multiprocessing.get_context("spawn")


def run() -> list[BenchRow]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory), {"HEADRACE_TEST_BROKER": "embedded"}) as broker,
    ):
        profile = BrokerProfile(broker.bootstrap_servers, "embedded")
        register_model(profile)
        tenant = f"bench-{secrets.token_hex(4)}"
        key = register_tenant(profile, tenant)
        settings = GatewaySettings(profile=profile, topics=TOPICS, port=free_port(), gateway_id=f"gateway-{tenant}")
        with _Upstream(profile, tenant) as upstream, _process(_gateway, settings):
            frames = asyncio.run(_frames(settings.port, key, upstream))
            bare_port = free_port()
            with _process(_bare_server, bare_port, frames):
                ours, bare = [], []
                for _ in range(ROUNDS):
                    ours.append(asyncio.run(_measure(settings.port, key, upstream)))
                    bare.append(asyncio.run(_measure(bare_port, key, None)))
    return [
        BenchRow("gateway_fanout_vs_bare_websockets", statistics.median(ours), statistics.median(bare), "tokens/s", BAR)
    ]


async def _measure(port: int, key: str, upstream: _Upstream | None) -> float:
    """Tokens a second over all clients; without an upstream the server needs no log."""
    clients = [await _Client.dial(port, key) for _ in range(CLIENTS)]
    for client in clients:
        client.send({"type": "response.create", "model": "chat", "input": "x"})
    if upstream is not None:
        begin = await asyncio.to_thread(upstream.release, CLIENTS)
    else:
        begin = time.perf_counter()
    await asyncio.gather(*(client.finished for client in clients))
    seconds = time.perf_counter() - begin
    for client in clients:
        client.close()
    return CLIENTS * TOKENS / seconds


async def _frames(port: int, key: str, upstream: _Upstream) -> list[str]:
    """One response's frames, for the bare server to send."""
    async with connect(
        f"ws://127.0.0.1:{port}/v1/responses", additional_headers={"authorization": f"Bearer {key}"}
    ) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "chat", "input": "x"}))
        await asyncio.to_thread(upstream.release, 1)
        frames = [str(await socket.recv())]
        while LAST.decode() not in frames[-1]:
            frames.append(str(await socket.recv()))
    return frames


class _Upstream(FakeUpstream):
    """Collects requests, then answers them all at once with events that are encoded beforehand."""

    def __init__(self, profile: BrokerProfile, tenant: str) -> None:
        super().__init__(profile, [tenant])
        self._waiting: list[RequestSubmitted] = []
        self._came = threading.Condition()
        self._writer = EventProducer(profile, client_id="bench-upstream", linger_ms=1)
        self.script_for["chat"] = self._collect

    def _collect(self, request: RequestSubmitted) -> Iterator[Step]:
        with self._came:
            self._waiting.append(request)
            self._came.notify()
        return iter(())

    def release(self, requests: int) -> float:
        """Wait for so many requests, then write all their events; when the writing began."""
        with self._came:
            self._came.wait_for(lambda: len(self._waiting) == requests)
            taken, self._waiting = self._waiting, []
        logs = [_log(request) for request in taken]
        records = [
            (event, encode(event), headers_of(event, source="/bench"))
            for step in zip(*logs, strict=True)
            for event in step
        ]
        begin = time.perf_counter()
        for event, value, headers in records:
            partition, key = partition_of(event.request_id), event.request_id.encode()
            self._writer.send_bytes(tokens_topic(event.tenant), value, key=key, headers=headers, partition=partition)
        return begin


def _log(request: RequestSubmitted) -> list[TokenLogEvent]:
    return [admitted(request), started(request), *tokens(request, [" word"] * TOKENS), finished(request, TOKENS)]


class _Client(asyncio.Protocol):
    """A WebSocket client that only looks for the last event: it must not be what is measured."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._end = b""

    @classmethod
    async def dial(cls, port: int, key: str) -> _Client:
        _, client = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        head = (
            "GET /v1/responses HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", f"Authorization: Bearer {key}",
        )  # fmt: skip
        client._write("\r\n".join((*head, "", "")).encode())
        await client.opened
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        seen = self._end + data
        if not self.opened.done() and b"\r\n\r\n" in seen:
            self.opened.set_result(None)
        if LAST in seen and not self.finished.done():
            self.finished.set_result(None)
        self._end = seen[-len(LAST) :]

    def send(self, message: dict[str, str]) -> None:
        frame = Frame(Opcode.TEXT, json.dumps(message).encode())
        self._write(frame.serialize(mask=True))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


@contextmanager
def _process(target: object, *arguments: object) -> Iterator[None]:
    """A server in a process of its own, ready when the block begins."""
    ready, stop = _SPAWN.Event(), _SPAWN.Event()
    process = _SPAWN.Process(target=target, args=(*arguments, ready, stop), daemon=True)  # type: ignore[arg-type]
    process.start()
    if not ready.wait(60):
        raise RuntimeError(f"{target} is not ready after 60 s")
    try:
        yield
    finally:
        stop.set()
        process.join(10)


def _gateway(settings: GatewaySettings, ready: ProcessEvent, stop: ProcessEvent) -> None:
    async def serving() -> None:
        stopping = asyncio.Event()
        waiting = asyncio.create_task(_when_set(stop, stopping))
        await run_gateway(settings, stop=stopping, ready=ready.set)
        await waiting

    asyncio.run(serving())


def _bare_server(port: int, frames: list[str], ready: ProcessEvent, stop: ProcessEvent) -> None:
    async def answer(connection: ServerConnection) -> None:
        await connection.recv()
        for frame in frames:
            await connection.send(frame)
        await connection.wait_closed()

    async def serving() -> None:
        stopping = asyncio.Event()
        async with serve(answer, "127.0.0.1", port, compression=None):
            ready.set()
            await _when_set(stop, stopping)

    asyncio.run(serving())


async def _when_set(stop: ProcessEvent, stopping: asyncio.Event) -> None:
    await asyncio.to_thread(stop.wait)
    stopping.set()
