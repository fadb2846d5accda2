"""The streams on a real broker: whatever comes in, each request is answered once, and the next one is served."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from schemas.codec import encode
from schemas.events import (
    AdapterRegistered,
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
from schemas.ids import RANDOM_BITS, new_request_id
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
from streams.metrics import StreamsMetrics
from streams.service import run
from streams.settings import StreamsSettings
from streams.stage import Stage
from tests.brokers import Broker
from tests.timing import within

T = TypeVar("T")
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

GUIDED = replace(MODEL, model_version="streams-guided@v1", deployment="streams-guided-v1", engine="torch")


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

    def register(self, tenant: str, *, tokens_per_minute: int = 100_000, max_concurrent: int = 100) -> None:
        record = TenantRegistered(
            tenant=tenant,
            at_us=now_us(),
            requests_per_minute=1000,
            tokens_per_minute=tokens_per_minute,
            max_concurrent_requests=max_concurrent,
        )
        models = {model.model_version: model for model in (MODEL, GUIDED)}
        self._admin.register_tenant(record, Registry(models=models))

    def write(self, topic: str, event: Event, key: str, partition: int | None = None) -> None:
        self._producer.send(topic, event, key=key, partition=partition)
        assert self._producer.flush() == 0

    def write_bytes(self, topic: str, value: bytes, partition: int | None = None) -> None:
        headers: Any = [("empty", None)]  # Kafka allows it, we write none
        self._producer.send_bytes(topic, value, key=b"k", headers=headers, partition=partition)
        assert self._producer.flush() == 0

    def register_model(self, model: ModelRegistered) -> None:
        """Before the tenants that are to use it."""
        self._admin.register_model(model, Registry())

    def register_adapter(self, adapter: str, tenant: str) -> AdapterRegistered:
        """Of GUIDED, for a tenant that is registered."""
        event = AdapterRegistered(
            adapter=adapter, at_us=now_us(), model_version=GUIDED.model_version, location="/a", tenant=tenant
        )
        reader = RegistryReader(self._profile, client_id="test")
        self._admin.register_adapter(event, reader.start())
        reader.close()
        return event

    def submit(self, tenant: str, text: str = "hello", *, model: str = MODEL.model_version, **fields: Any) -> str:
        request_id = new_id()
        event = replace(request(tenant, request_id, text, model), **fields)
        self.write(requests_topic(tenant), event, request_id)
        return request_id

    def read(self, topic: str) -> list[Event]:
        """Everything in the topic now."""
        count = 1 if topic.startswith(("lifecycle", "dead-letters")) else 4
        with LogReader(self._profile, client_id=f"test-{secrets.token_hex(3)}") as reader:
            return [record.event() for record in reader.read_to_end({(topic, p): 0 for p in range(count)})]

    async def wait_for(self, kind: type[T], topic: str, request_id: str | None = None) -> T:
        """The first event of a kind (about a request) in a topic."""

        def find() -> T | None:
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


async def wait_until(find: Callable[[], T | None]) -> T:
    async with asyncio.timeout(within(30)):
        while True:
            found = await asyncio.to_thread(find)
            if found is not None:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(
    settings: StreamsSettings, metrics: StreamsMetrics | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """The streams, ready; stopped at the end, which must come without an error."""
    stop, ready = asyncio.Event(), asyncio.Event()
    service = asyncio.create_task(run(settings, stop, ready=ready.set, metrics=metrics))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([service, waiting], timeout=within(30), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if service.done():
        await service
    assert ready.is_set()
    try:
        yield service
    finally:
        if service.done():
            service.result()  # its reason says more than what the test missed because of it
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


async def test_bad_requests_end_with_their_reason_and_the_next_one_is_served(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name, tokens_per_minute=40)
    async with running(settings):
        unknown = log.submit(tenant_name, model="gpt-9")
        empty = log.submit(tenant_name, "")
        too_big = log.submit(tenant_name, "x" * 30)
        good = log.submit(tenant_name, "x" * 20)
        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), good)
        over_quota = log.submit(tenant_name, "x" * 20)
        await log.wait_for(RequestRejected, tokens_topic(tenant_name), over_quota)

    refused = [e for e in log.read(tokens_topic(tenant_name)) if isinstance(e, RequestRejected)]
    assert {(e.request_id, e.status, e.code) for e in refused} == {
        (unknown, 404, "model_not_found"),
        (empty, 400, "empty_prompt"),
        (too_big, 422, "request_exceeds_quota"),
        (over_quota, 429, "token_rate_exceeded"),
    }
    assert all(e.retry_after_ms for e in refused if e.status == 429)


async def test_a_schema_that_takes_for_ever_is_refused_and_holds_up_nobody(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register_model(GUIDED)
    log.register(tenant_name)
    endless = json.dumps({"type": "string", "allOf": [{"pattern": f".*a{i}.*"} for i in range(40)]})
    async with running(settings):
        hostile = log.submit(tenant_name, model=GUIDED.model_version, json_schema=endless)
        plain = log.submit(tenant_name)
        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), plain)
        refused = await log.wait_for(RequestRejected, tokens_topic(tenant_name), hostile)
        guided = log.submit(tenant_name, model=GUIDED.model_version, json_schema='{"type": "object"}')
        routed = await log.wait_for(RequestRouted, work_topic(GUIDED.deployment, tenant_name), guided)

    assert (refused.status, refused.code) == (400, "invalid_json_schema")
    assert "more time or memory" in refused.message
    assert routed.json_schema == '{"type": "object"}'


async def test_an_adapter_is_routed_to_its_base_version_for_its_tenant_alone(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    stranger, adapter = f"{tenant_name}-stranger", f"tone-{tenant_name}@v1"
    log.register_model(GUIDED)
    log.register(tenant_name)
    log.register(stranger)
    registered = log.register_adapter(adapter, tenant_name)
    async with running(settings):
        own = log.submit(tenant_name, model=adapter)
        theirs = log.submit(stranger, model=adapter)
        routed = await log.wait_for(RequestRouted, work_topic(GUIDED.deployment, tenant_name), own)
        refused = await log.wait_for(RequestRejected, tokens_topic(stranger), theirs)

    assert (routed.model, routed.model_version, routed.adapter) == (adapter, GUIDED.model_version, adapter)
    assert (routed.adapter_registered_at_us, routed.adapter_location) == (registered.at_us, registered.location)
    assert (refused.status, refused.code) == (404, "model_not_found")


async def test_a_tenant_registered_while_running_is_served_from_its_first_request_on_and_others_lose_nothing(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name)
    newcomer = f"{tenant_name}-new"
    async with running(settings):
        before = [log.submit(tenant_name) for _ in range(20)]
        log.register(newcomer)
        early = log.submit(newcomer)
        after = [log.submit(tenant_name) for _ in range(20)]

        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, newcomer), early)
        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), after[-1])

    routed = [e for e in log.read(work_topic(MODEL.deployment, tenant_name)) if isinstance(e, RequestRouted)]
    assert sorted(e.request_id for e in routed) == sorted(before + after)


async def test_the_first_tenant_of_all_may_come_after_the_start(
    broker: Broker, log: Log, settings: StreamsSettings, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_start = RegistryReader.start

    def without_tenants(reader: RegistryReader, timeout_s: float = 30.0) -> Registry:
        return replace(real_start(reader, timeout_s), tenants={})

    monkeypatch.setattr(RegistryReader, "start", without_tenants)
    async with running(settings):
        log.register(tenant_name)
        request_id = log.submit(tenant_name)

        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), request_id)


async def test_a_cancel_follows_the_work_order_and_the_end_settles_the_quota(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name)
    work = work_topic(MODEL.deployment, tenant_name)
    async with running(settings):
        request_id = log.submit(tenant_name, "hello")
        cancel = RequestCancelled(request_id=request_id, tenant=tenant_name, at_us=now_us(), reason="client")
        log.write(requests_topic(tenant_name), cancel, request_id)
        await log.wait_for(RequestCancelled, work, request_id)

        log.write(VALIDATED.name, finished(tenant_name, request_id, output_tokens=3), tenant_name)
        settled = await log.wait_for(QuotaSettled, lifecycle_topic(tenant_name), request_id)

    assert [type(e) for e in log.read(work)] == [RequestRouted, RequestCancelled]
    assert (settled.reserved_tokens, settled.released_tokens) == (21, 13)


async def test_what_can_not_be_read_goes_to_the_dead_letters_and_nothing_stops_behind_it(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name)
    requests = requests_topic(tenant_name)
    stranger = new_id()
    async with running(settings):
        log.write_bytes(requests, b"poison", partition=0)
        log.write_bytes(requests, b"\xc3\x01" + b"unknown!" + b"body", partition=0)
        log.write(requests, request("someone-else", stranger, "hi", MODEL.model_version), stranger)
        out_of_range = new_id(partition=999)
        log.write(requests, request(tenant_name, out_of_range, "hi", MODEL.model_version), out_of_range)
        log.write_bytes(VALIDATED.name, b"poison for all")
        good = log.submit(tenant_name)

        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), good)
        shared = await log.wait_for(DeadLettered, dead_letters_topic("_system"))
        # They stand in other partitions than the good request, which may overtake them.
        await wait_until(lambda: len(log.read(dead_letters_topic(tenant_name))) >= 4 or None)

    letters = [e for e in log.read(dead_letters_topic(tenant_name)) if isinstance(e, DeadLettered)]
    assert sorted(e.reason for e in letters) == [
        "misplaced_event",
        "misplaced_event",
        "undecodable",
        "unknown_schema",
    ]
    poison = next(e for e in letters if e.value == b"poison")
    assert (poison.origin_topic, poison.origin_partition, poison.origin_offset) == (requests, 0, 0)
    assert poison.headers == {"empty": b""}
    assert (shared.origin_topic, shared.value) == (VALIDATED.name, b"poison for all")


async def test_after_a_restart_ledgers_are_recovered_and_duplicates_reserve_nothing(
    log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name, max_concurrent=6)
    work = work_topic(MODEL.deployment, tenant_name)
    async with running(settings):
        first = [log.submit(tenant_name) for _ in range(5)]
        for request_id in first:
            await log.wait_for(RequestRouted, work, request_id)

    async with running(settings):
        for request_id in first:
            log.write(
                requests_topic(tenant_name),
                request(tenant_name, request_id, "hello", MODEL.model_version),
                request_id,
            )
        sixth = log.submit(tenant_name)
        await log.wait_for(RequestRouted, work, sixth)
        seventh = log.submit(tenant_name)
        refused = await log.wait_for(RequestRejected, tokens_topic(tenant_name), seventh)
        # What was open before the restart is still known, and can be settled.
        log.write(VALIDATED.name, finished(tenant_name, first[0], output_tokens=1), tenant_name)
        await log.wait_for(QuotaSettled, lifecycle_topic(tenant_name), first[0])

    assert refused.code == "concurrency_exceeded"
    routed = [e.request_id for e in log.read(work) if isinstance(e, RequestRouted)]
    assert sorted(routed) == sorted([*first, sixth])


async def test_a_crash_of_a_stage_ends_the_process_with_its_reason_and_the_next_one_goes_on(
    log: Log, settings: StreamsSettings, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.register(tenant_name)
    work = work_topic(MODEL.deployment, tenant_name)
    with monkeypatch.context() as broken:
        broken.setattr("streams.processors.decide.decide_admission", lambda *_, **__: 1 / 0)
        request_id = log.submit(tenant_name)
        with pytest.raises(StageFailed, match=r"decide-validated stopped: ZeroDivisionError"):
            await asyncio.wait_for(run(settings, asyncio.Event()), within(30))

    async with running(settings):
        await log.wait_for(RequestRouted, work, request_id)


async def test_a_crash_inside_faust_ends_the_process(
    log: Log, settings: StreamsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_start = Stage.start

    async def start_and_crash(stage: Stage) -> None:
        await real_start(stage)
        await stage.app.consumer.crash(RuntimeError("fetcher lost"))

    monkeypatch.setattr(Stage, "start", start_and_crash)
    with pytest.raises(StageFailed, match=r"Faust stopped.*fetcher lost"):
        await asyncio.wait_for(run(settings, asyncio.Event()), within(30))


@pytest.mark.integration
async def test_a_transactional_producer_leaves_no_lag_behind(
    log: Log, settings: StreamsSettings, tenant_name: str, profile: BrokerProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.register(tenant_name)
    stages: list[Stage] = []
    real_start = Stage.start

    async def start(stage: Stage) -> None:
        stages.append(stage)
        await real_start(stage)

    monkeypatch.setattr(Stage, "start", start)
    producer = Producer({**profile.producer("test"), "transactional.id": tenant_name})
    await asyncio.to_thread(producer.init_transactions)
    async with running(settings):
        request_id = new_id()
        producer.begin_transaction()
        value = encode(request(tenant_name, request_id, "hello", MODEL.model_version))
        producer.produce(requests_topic(tenant_name), value, request_id)
        await asyncio.to_thread(producer.commit_transaction)
        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), request_id)

        def caught_up() -> bool | None:
            ends = [
                stage.app.consumer.highwater(tp)
                for stage in stages
                for tp in stage.app.consumer.assignment()
                if tp.topic == requests_topic(tenant_name)
            ]
            lag = [behind for stage in stages for behind in stage.lag().values()]
            return True if 2 in ends and not any(lag) else None  # 2: the request, and the transaction's end

        assert await wait_until(caught_up)
