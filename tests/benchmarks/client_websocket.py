"""Tokens a second that headrace-client's Stream takes off one WebSocket, against bare websockets and json.loads.

A server in a process of its own pushes ready frames, one for each token, as fast as the socket takes them. Each client
runs in a process of its own too, of one thread, and says how many tokens came a second of its own processor time: what
it would do on a core that nobody else uses. (The time of the wall is shown beside; here it depends on who else runs.)
The bare client receives and parses each frame, and adds up the text: it has no order, no resume, no types, no limit.

`client_websocket_50k` is the rate that a client must keep up with. `client_websocket_memory` is what the client's
memory grows by between the first tenth of a long answer and its end, against what its text alone takes when it is kept.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import multiprocessing
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from headrace_client import OutputTextDelta, Stream
from tests.benchmarks.row import BenchRow

TOKENS: Final = 200_000
WORD: Final = " word"
ROUNDS: Final = 3
MUST_KEEP_UP_WITH: Final = 50_000
BAR_BARE: Final = 0.5
ID: Final = "resp_0192f3a0111172228333444444440005"
_SPAWN = multiprocessing.get_context("spawn")
_ACCEPT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CHUNK_BYTES: Final = 256 * 1024


class Taken(NamedTuple):
    """What one client says of one answer. All of it is about what comes behind the first tenth of the tokens."""

    tokens_per_cpu_second: float
    tokens_per_second: float
    grown_bytes: int


def run() -> list[BenchRow]:
    with _server() as port:
        ours, bare = [], []
        for _ in range(ROUNDS):
            ours.append(_in_its_own_process(_through_stream, port))
            bare.append(_in_its_own_process(_bare_client, port))
    rate = statistics.median(taken.tokens_per_cpu_second for taken in ours)
    bare_rate = statistics.median(taken.tokens_per_cpu_second for taken in bare)
    by_the_wall = statistics.median(taken.tokens_per_second for taken in ours)
    grown = statistics.median(taken.grown_bytes for taken in ours)
    return [
        BenchRow("client_websocket_vs_bare", rate, bare_rate, "tokens/cpu-s", BAR_BARE),
        BenchRow("client_websocket_50k", rate, MUST_KEEP_UP_WITH, "tokens/cpu-s", 1.0),
        BenchRow("client_websocket_50k_by_the_wall", by_the_wall, MUST_KEEP_UP_WITH, "tokens/s", 1.0),
        BenchRow("client_websocket_memory", grown, TOKENS * len(WORD), "bytes", 1.0, higher_is_better=False),
    ]


async def _through_stream(port: int) -> Taken:
    async with Stream(f"http://127.0.0.1:{port}", api_key="hr_key") as stream:
        meter = _Meter()
        response = await stream.create(model="chat", input="x")
        async for event in response:
            if isinstance(event, OutputTextDelta):
                meter.add(event.delta)
        return meter.taken()


async def _bare_client(port: int) -> Taken:
    async with connect(f"ws://127.0.0.1:{port}/v1/responses", compression=None) as socket:
        meter = _Meter()
        await socket.send(json.dumps({"type": "response.create", "model": "chat", "input": "x", "event_id": "1"}))
        while True:
            event = json.loads(await socket.recv())
            if event["type"] == "response.output_text.delta":
                meter.add(event["delta"])
            elif event["type"] == "response.completed":
                return meter.taken()


class _Meter:
    """Counts tokens; times and memory are looked at when the first tenth has come, and at the end."""

    def __init__(self) -> None:
        self._tokens = self._chars = self._memory = 0
        self._cpu = self._wall = 0.0

    def add(self, delta: str) -> None:
        self._tokens += 1
        self._chars += len(delta)
        if self._tokens == TOKENS // 10:
            self._memory, self._cpu, self._wall = _resident_bytes(), time.process_time(), time.perf_counter()

    def taken(self) -> Taken:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        assert (self._tokens, self._chars) == (TOKENS, TOKENS * len(WORD))
        counted = TOKENS - TOKENS // 10
        return Taken(counted / cpu, counted / wall, _resident_bytes() - self._memory)


def _resident_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _in_its_own_process(client: Callable[[int], Any], port: int) -> Taken:
    mine, its = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_run_client, args=(client, port, its), daemon=True)
    process.start()
    its.close()
    taken: Taken = mine.recv()
    process.join()
    return taken


def _run_client(client: Callable[[int], Any], port: int, answer: Connection) -> None:
    answer.send(asyncio.run(client(port)))


@contextmanager
def _server() -> Iterator[int]:
    """Its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = _SPAWN.Process(target=_serve, args=(listener,), daemon=True)
        process.start()
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def _serve(listener: socket.socket) -> None:
    """One client after the other. No WebSocket library: it must not be what is measured."""
    frames = b"".join(_frames())
    while True:
        client, _ = listener.accept()
        with client:
            _upgrade(client)
            head = Frame(Opcode.TEXT, json.dumps(_created(_event_id(client))).encode()).serialize(mask=False)
            client.sendall(head)
            for at in range(0, len(frames), _CHUNK_BYTES):
                client.sendall(frames[at : at + _CHUNK_BYTES])
            while client.recv(65_536):  # until the client goes
                pass


def _upgrade(client: socket.socket) -> None:
    request = b""
    while b"\r\n\r\n" not in request:
        request += client.recv(65_536)
    key = re.search(rb"Sec-WebSocket-Key: *(\S+)", request, re.IGNORECASE)
    assert key is not None
    accept = base64.b64encode(hashlib.sha1(key[1] + _ACCEPT).digest())
    client.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


def _event_id(client: socket.socket) -> str:
    """Of the create, which is one short masked frame."""
    data = client.recv(65_536)
    length = data[1] & 0x7F
    start = 2 if length < 126 else 4
    mask, body = data[start : start + 4], data[start + 4 :]
    create = json.loads(bytes(byte ^ mask[index % 4] for index, byte in enumerate(body)))
    return str(create["event_id"])


def _created(event_id: str) -> dict[str, Any]:
    return {
        "type": "response.created", "event_id": event_id, "response_id": ID, "sequence_number": 0,
        "response": {"id": ID, "status": "in_progress"},
    }  # fmt: skip


def _frames() -> Iterator[bytes]:
    """What follows `response.created`: the gateway's own form of a delta, and the end."""
    for number in range(1, TOKENS + 1):
        delta = {
            "type": "response.output_text.delta", "response_id": ID, "sequence_number": number, "item_id": f"msg_{ID}",
            "output_index": 0, "content_index": 0, "delta": WORD,
        }  # fmt: skip
        yield Frame(Opcode.TEXT, json.dumps(delta, separators=(",", ":")).encode()).serialize(mask=False)
    end = {"type": "response.completed", "response_id": ID, "sequence_number": TOKENS + 1, "response": {"id": ID}}
    yield Frame(Opcode.TEXT, json.dumps(end).encode()).serialize(mask=False)
