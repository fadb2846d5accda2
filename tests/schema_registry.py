"""Schema registries for tests: the real one (Apicurio), and a stand-in that fails on demand.

The real one needs Java 17+ and its folder: HEADRACE_TEST_SCHEMA_REGISTRY_HOME, or `schema-registry` beside KAFKA_HOME.
Without them tests are skipped, with HEADRACE_REQUIRE_SCHEMA_REGISTRY=1 they fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from eventlog.schema_registry_address import RegistryAddress
from infra.errors import JavaMissing, JavaUnusable
from infra.runtime.guard import guarded
from infra.runtime.java import find_java
from infra.runtime.ports import LOOPBACK, free_port
from schemas.codec import SCHEMAS, full_name
from schemas.events import SchemaRegistered
from tests.timing import eventually

_READY_SECONDS = 60.0
# Half the memory and half the time to start, for what is asked a few hundred questions.
_JAVA_OPTIONS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class RunningRegistry:
    """Apicurio Registry in a process of its own."""

    address: RegistryAddress
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running_registry(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[RunningRegistry]:
    """A real registry without a schema for as long as the block runs. Skips the test, or fails it, without one."""
    variables = os.environ if environment is None else environment
    jar, java = _jar(variables), _java(variables)
    if jar is None or java is None:
        reason = "needs a schema registry: HEADRACE_TEST_SCHEMA_REGISTRY_HOME with Apicurio's jar, and Java 17+"
        if variables.get("HEADRACE_REQUIRE_SCHEMA_REGISTRY") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    port = free_port()
    where = (f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}")
    log = directory / "schema-registry.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            guarded((java, *_JAVA_OPTIONS, *where, "-jar", str(jar)), os.getpid()),
            cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip
    registry = RunningRegistry(RegistryAddress(f"http://{LOOPBACK}:{port}/apis/ccompat/v7"), process)
    try:
        eventually(lambda: _answers(registry), f"the schema registry answers; its log is {log}", _READY_SECONDS)
        yield registry
    finally:
        registry.kill()


def _jar(variables: Mapping[str, str]) -> Path | None:
    home = variables.get("HEADRACE_TEST_SCHEMA_REGISTRY_HOME")
    if home is None and (kafka_home := variables.get("KAFKA_HOME")):
        home = str(Path(kafka_home).absolute().parent / "schema-registry")
    return next(iter(Path(home).glob("apicurio-registry-app-*-runner.jar")), None) if home else None


def _java(variables: Mapping[str, str]) -> str | None:
    try:
        return str(find_java(variables.get("JAVA_HOME")))
    except (JavaMissing, JavaUnusable):
        return None


def _answers(registry: RunningRegistry) -> bool:
    assert registry.process.poll() is None, "the schema registry ended by itself"
    try:
        return httpx.get(f"{registry.address.url}/subjects").status_code == 200
    except httpx.HTTPError:
        return False


def schema_ids(first: int) -> list[SchemaRegistered]:
    """What makes all our schemas known to the parts, by ids from `first` on, as if a registry had given them."""
    return [
        SchemaRegistered(
            subject=full_name(event_type), at_us=1, schema_id=first + number, version=1, fingerprint=ours.fingerprint
        )
        for number, (event_type, ours) in enumerate(SCHEMAS.items())
    ]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the stand-in answers. after: it waits for this first. endless: the body is sent again and again."""

    status: int = 200
    body: bytes = b""
    after: threading.Event | None = None
    endless: bool = False

    @classmethod
    def schema(cls, avro: object) -> Reply:
        return cls.text(json.dumps(avro))

    @classmethod
    def text(cls, schema: str) -> Reply:
        return cls(body=json.dumps({"schema": schema}).encode())


UNKNOWN_ID = Reply(404, b'{"error_code":40403,"message":"Schema not found"}')


class StandIn:
    """A schema registry that answers `GET /schemas/ids/N` with `replies[N]`, or else with `reply`.

    asked: the ids so far. authorizations: what came in that header.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.address = RegistryAddress(f"http://{LOOPBACK}:{server.server_port}")
        self.reply = UNKNOWN_ID
        self.replies: dict[int, Reply] = {}
        self.asked: list[int] = []
        self.authorizations: list[str | None] = []
        self._server = server

    def close(self) -> None:
        """Gone: from now on connections are refused."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Serves for as long as the block runs, or until `close`."""
    server = _Server((LOOPBACK, 0), _Handler)
    server.registry = StandIn(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.registry
    finally:
        server.registry.close()
        thread.join()


class _Server(ThreadingHTTPServer):
    registry: StandIn
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        registry = self.server.registry
        schema_id = int(self.path.rpartition("/")[2])
        registry.asked.append(schema_id)
        registry.authorizations.append(self.headers["Authorization"])
        reply = registry.replies.get(schema_id, registry.reply)
        if reply.after is not None:
            reply.after.wait()
        try:
            self._send(reply)
        except OSError:  # whoever asked has gone
            self.close_connection = True

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        if not reply.endless:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        while reply.endless:
            self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test's output is its own."""
