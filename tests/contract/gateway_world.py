"""Real gateways on a real log, with streams and workers played by a thread that writes the token log itself."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from eventlog.admin import LogAdmin
from eventlog.clock import now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry import Registry
from gateway.service import run
from gateway.settings import GatewaySettings
from infra.runtime.ports import free_port
from schemas.api_keys import KEY_RANDOM_BYTES, new_api_key
from schemas.events import (
    ApiKeyIssued,
    ModelRegistered,
    RequestCancelled,
    RequestSubmitted,
    Route,
    RouteTarget,
    TenantRegistered,
    TokenLogEvent,
    TokensGenerated,
)
from schemas.ids import partition_of
from schemas.topics import Topics, requests_topic, tokens_topic
from tests.gateway_events import MODEL, admitted, finished, started, tokens
from tests.timing import within

TOPICS = Topics()
Step = TokenLogEvent | threading.Event
Script = Callable[[RequestSubmitted], Iterable[Step]]


def echo(request: RequestSubmitted) -> list[Step]:
    """The default answer: the last message, word by word."""
    words = [f"{word} " for word in request.messages[-1].content.split()]
    reason = "length" if request.max_output_tokens == len(words) else "stop"
    return [admitted(request), started(request), *tokens(request, words), finished(request, len(words), reason)]


class FakeUpstream:
    """Reads requests.<tenant> and writes what a script says; `threading.Event`s in it are waited for.

    script_for: by the request's model; others echo. A cancel ends an unfinished request.
    """

    def __init__(self, profile: BrokerProfile, tenants: Iterable[str]) -> None:
        self._reader = LogReader(profile, client_id="fake-upstream")
        self._producer = EventProducer(profile, client_id="fake-upstream")
        self._tenants = tuple(tenants)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._workers: list[threading.Thread] = []
        self._cancelled: set[str] = set()
        self.script_for: dict[str, Script] = {}
        self.requests: list[RequestSubmitted] = []
        self.cancels: list[RequestCancelled] = []

    def requests_for(self, model: str) -> list[RequestSubmitted]:
        """Those that came so far."""
        return [request for request in self.requests if request.model == model]

    def write(self, event: TokenLogEvent) -> None:
        self._producer.send(
            tokens_topic(event.tenant), event, key=event.request_id, partition=partition_of(event.request_id)
        )  # fmt: skip

    def __enter__(self) -> Self:
        for tenant in self._tenants:
            for partition in range(TOPICS.requests):
                self._reader.assign(requests_topic(tenant), partition, 0)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in (self._thread, *self._workers):
            thread.join(within(10))
        self._reader.close()
        self._producer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for record in self._reader.poll(0.05).records:
                event = record.event()
                if isinstance(event, RequestCancelled):
                    self.cancels.append(event)
                    self._cancelled.add(event.request_id)
                elif isinstance(event, RequestSubmitted):
                    self.requests.append(event)
                    worker = threading.Thread(target=self._answer, args=(event,), daemon=True)
                    self._workers.append(worker)
                    worker.start()

    def _answer(self, request: RequestSubmitted) -> None:
        written = 0
        for step in self.script_for.get(request.model, echo)(request):
            while isinstance(step, threading.Event) and not step.wait(0.01):
                if request.request_id in self._cancelled:
                    self.write(finished(request, written, "cancelled"))
                    return
                if self._stop.is_set():
                    return
            if not isinstance(step, threading.Event):
                written += isinstance(step, TokensGenerated)
                self.write(step)


class RunningGateway:
    """A gateway in a thread with a loop of its own."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.settings.port}/v1/responses"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(within(30))
        self._raise()

    def stop(self) -> None:
        """Stop it, if it has not stopped; a failure of the gateway is raised here."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(within(20))
        assert not self._thread.is_alive()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await run(self.settings, stop=self._stop, ready=self._ready.set)


@contextmanager
def running_gateway(settings: GatewaySettings) -> Iterator[RunningGateway]:
    """On a free port; ready when the block begins, stopped at its end."""
    gateway = RunningGateway(replace(settings, port=free_port()))
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


@dataclass(frozen=True)
class World:
    """What a test of the gateway has: a gateway, two tenants with keys, and the other side of the log."""

    profile: BrokerProfile
    gateway: RunningGateway
    upstream: FakeUpstream
    tenant: str
    key: str
    stranger_key: str
    settings: GatewaySettings = field(repr=False)


@contextmanager
def world(profile: BrokerProfile) -> Iterator[World]:
    """A world on this broker, with names that no other has."""
    mark = secrets.token_hex(4)
    names = [f"gw-{mark}", f"stranger-{mark}"]
    keys = [register_tenant(profile, name) for name in names]
    settings = GatewaySettings(profile=profile, topics=TOPICS, gateway_id=f"gw-{mark}-1")
    with FakeUpstream(profile, names) as upstream, running_gateway(settings) as gateway:
        yield World(profile, gateway, upstream, names[0], keys[0], keys[1], settings)


def register_tenant(profile: BrokerProfile, name: str) -> str:
    """The tenant with its topics; its key."""
    key = new_api_key(secrets.token_bytes(KEY_RANDOM_BYTES))
    tenant = TenantRegistered(
        tenant=name, at_us=now_us(), requests_per_minute=60, tokens_per_minute=9000, max_concurrent_requests=8
    )
    with LogAdmin(profile, TOPICS) as admin:
        admin.create_shared_topics()
        admin.register_tenant(tenant, Registry())
        admin.issue_key(ApiKeyIssued(tenant=name, at_us=now_us(), key_id=key.key_id, key_sha256=key.sha256))
    return key.secret


def register_model(profile: BrokerProfile) -> None:
    """`chat` as an alias of chat@v1."""
    with LogAdmin(profile, TOPICS) as admin:
        admin.create_shared_topics()
        model = ModelRegistered(
            model_version=MODEL, at_us=now_us(), deployment="chat-v1", engine="echo", location="bytes",
            tokenizer="bytes", context_tokens=512, default_max_output_tokens=64,
        )  # fmt: skip
        admin.register_model(model, Registry())
        route = Route(alias="chat", targets=(RouteTarget(model_version=MODEL, percent=100.0),))
        admin.set_routes((route,), Registry(), now_us=now_us(), reason="test")
