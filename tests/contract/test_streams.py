"""The streams on a real broker: whatever comes in, each request is answered once, and the next one is served."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry import Registry
from schemas.events import (
    DeadLettered,
    Event,
    GenerationFinished,
    Message,
    ModelRegistered,
    QuotaSettled,
    RequestAdmitted,
    RequestCancelled,
    RequestRejected,
    RequestRouted,
    RequestSubmitted,
    TenantRegistered,
)
from schemas.ids import RANDOM_BITS, new_request_id, partition_of
from schemas.topics import (
    VALIDATED,
    Topics,
    dead_letters_topic,
    lifecycle_topic,
    requests_topic,
    tokens_topic,
    work_topic,
)
from streams.errors import StageFailed
from streams.service import run
from streams.settings import StreamsSettings
from streams.stage import Stage
from tests.brokers import Broker
from tests.timing import within

TOPICS = Topics()
MODEL = ModelRegistered(
    model_version="streams-echo@v1",
    at_us=1,
    deployment="streams-echo-v1",
    engine="echo",
    location="",
    tokenizer="bytes",
    context_tokens=4096,
    default_max_output_tokens=16,
)
E_ = TypeVar("E_", bound=Event)


@pytest.fixture(scope="module")
def profile(broker: Broker) -> BrokerProfile:
    return BrokerProfile(broker.bootstrap_servers, "kafka" if broker.is_real else "embedded")


@pytest.fixture(scope="module")
def log(profile: BrokerProfile) -> Iterator[Log]:
    with LogAdmin(profile, TOPICS) as admin, EventProducer(profile, client_id="test") as producer:
        admin.create_shared_topics()
        admin.register_model(MODEL, Registry())
        yield Log(profile, admin, producer)


@pytest.fixture
def settings(profile: BrokerProfile, tmp_path: Path) -> StreamsSettings:
    return StreamsSettings(profile, TOPICS, tmp_path, group=f"streams-{secrets.token_hex(4)}")


class Log:
    """What a test does with the log: register, write, and wait for what is written in answer."""

    def __init__(self, profile: BrokerProfile, admin: LogAdmin, producer: EventProducer) -> None:
        self._profile = profile
        self._admin = admin
        self._producer = producer

    def register(self, tenant: str, *, tokens_per_minute: int = 100_000, requests_per_minute: int = 1000) -> None:
        record = TenantRegistered(
            tenant=tenant,
            at_us=now_us(),
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            max_concurrent_requests=100,
        )
        self._admin.register_tenant(record, Registry(models={MODEL.model_version: MODEL}))

    def write(self, topic: str, event: Event, key: str) -> None:
        self._producer.send(topic, event, key=key)
        assert self._producer.flush() == 0

    def write_bytes(self, topic: str, value: bytes, partition: int | None = None) -> None:
        self._producer.send_bytes(topic, value, key=b"k", headers=[], partition=partition)
        assert self._producer.flush() == 0

    def submit(self, tenant: str, text: str = "hello", *, model: str = MODEL.model_version) -> str:
        request_id = new_id()
        self.write(requests_topic(tenant), request(tenant, request_id, text, model), request_id)
        return request_id

    def read(self, topic: str) -> list[Event]:
        """Everything in the topic now."""
        count = 1 if topic.startswith(("lifecycle", "dead-letters")) else 4
        with LogReader(self._profile, client_id=f"test-{secrets.token_hex(3)}") as reader:
            return [record.event() for record in reader.read_to_end({(topic, p): 0 for p in range(count)})]

    async def wait_for(self, kind: type[E_], topic: str, request_id: str | None = None) -> E_:
        """The first event of a kind (about a request) in a topic."""

        def find() -> E_ | None:
            found = [e for e in self.read(topic) if isinstance(e, kind)]
            return next((e for e in found if request_id in (None, getattr(e, "request_id", None))), None)

        return await wait_until(find)


def request(tenant: str, request_id: str, text: str, model: str) -> RequestSubmitted:
    return RequestSubmitted(
        request_id=request_id,
        tenant=tenant,
        at_us=now_us(),
        received_at_us=now_us(),
        source="test",
        model=model,
        messages=(Message(role="user", content=text),),
    )


def finished(tenant: str, request_id: str, output_tokens: int) -> GenerationFinished:
    return GenerationFinished(
        request_id=request_id,
        tenant=tenant,
        attempt=1,
        at_us=now_us(),
        worker="w",
        deployment=MODEL.deployment,
        model_version=MODEL.model_version,
        finish_reason="stop",
        prompt_tokens=5,
        output_tokens=output_tokens,
    )


def new_id(partition: int = 2) -> str:
    return new_request_id(now_ms=now_ms(), partition=partition, entropy=secrets.randbits(RANDOM_BITS))


T = TypeVar("T")


async def wait_until(find: Callable[[], T | None]) -> T:
    async with asyncio.timeout(within(30)):
        while (found := await asyncio.to_thread(find)) is None:
            await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def running(settings: StreamsSettings) -> AsyncIterator[asyncio.Task[None]]:
    """The streams, ready; stopped at the end, which must come without an error."""
    stop, ready = asyncio.Event(), asyncio.Event()
    service = asyncio.create_task(run(settings, stop, ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([service, waiting], timeout=within(30), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if service.done():
        await service
    assert ready.is_set()
    yield service
    stop.set()
    await asyncio.wait_for(service, within(15))


async def test_a_request_is_admitted_into_its_token_log_and_sent_to_its_deployment(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name)
    async with running(settings):
        request_id = log.submit(tenant_name, "hello")

        routed = await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), request_id)
        admitted = await log.wait_for(RequestAdmitted, tokens_topic(tenant_name), request_id)

    assert routed.prompt_token_ids == tuple(b"hello")
    assert routed.max_output_tokens == 16
    assert (admitted.reserved_tokens, admitted.remaining_requests) == (21, 999)
