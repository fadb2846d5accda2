"""What eventlog promises, on whatever broker is at hand: the embedded one in `make test`, Apache Kafka in CI."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.dead_letters import send_dead_letter
from eventlog.errors import DeliveryFailed, LogUnreachable
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from schemas.api_keys import KEY_RANDOM_BYTES, new_api_key
from schemas.errors import UnknownSchema
from schemas.events import (
    ApiKeyIssued,
    DeadLettered,
    ModelRegistered,
    RequestCancelled,
    Route,
    RouteTarget,
    TenantRegistered,
)
from schemas.topics import Topics, dead_letters_topic, requests_topic, work_topic
from tests.timing import eventually

TOPICS = Topics()


def tenant(name: str) -> TenantRegistered:
    return TenantRegistered(
        tenant=name, at_us=now_us(), requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
    )


def cancelled(number: int, name: str) -> RequestCancelled:
    return RequestCancelled(request_id=f"r{number}", tenant=name, at_us=number, reason="client")


async def test_events_come_back_whole_in_order_and_once(
    admin: LogAdmin, producer: EventProducer, profile: BrokerProfile, tenant_name: str
) -> None:
    admin.register_tenant(tenant(tenant_name), Registry())
    topic = requests_topic(tenant_name)
    sent = [cancelled(number, tenant_name) for number in range(500)]
    await asyncio.gather(*(producer.deliver(topic, event, key="k", partition=2) for event in sent))
    with LogReader(profile, client_id="test") as reader:
        records = list(reader.read_to_end({(topic, 2): 0}))
        rest = list(reader.read_to_end({(topic, 2): 490, (topic, 1): 0}))
    assert [record.event() for record in records] == sent
    assert [record.offset for record in records] == list(range(500))
    assert [record.event() for record in rest] == sent[490:]
    assert records[0].header("request_id") == b"r0"
    assert records[0].header("tenant") == tenant_name.encode()
    assert records[0].header("nothing") is None


def test_a_log_read_from_a_requests_time_holds_what_was_written_after_it(
    admin: LogAdmin, producer: EventProducer, profile: BrokerProfile, tenant_name: str
) -> None:
    admin.register_tenant(tenant(tenant_name), Registry())
    topic = requests_topic(tenant_name)
    before = now_ms()
    producer.send(topic, cancelled(1, tenant_name), key="k", partition=0)
    assert producer.flush() == 0
    with LogReader(profile, client_id="test") as reader:
        start = reader.offset_at(topic, 0, before)
        assert [record.event() for record in reader.read_to_end({(topic, 0): start})] == [cancelled(1, tenant_name)]
        if profile.kind == "kafka":
            assert reader.offset_at(topic, 0, now_ms() + 3_600_000) == 1


def test_a_registry_started_late_knows_all_and_a_running_one_hears_of_changes(
    admin: LogAdmin, profile: BrokerProfile, tenant_name: str
) -> None:
    running = RegistryReader(profile, client_id="running")
    registry = running.start()
    changed: list[Registry] = []
    running.listen(changed.append)
    key = new_api_key(secrets.token_bytes(KEY_RANDOM_BYTES))
    version = f"{tenant_name}@v1"
    model = ModelRegistered(
        model_version=version, at_us=now_us(), deployment=f"d-{tenant_name}", engine="echo", location="bytes",
        tokenizer="bytes", context_tokens=512, default_max_output_tokens=64,
    )  # fmt: skip
    admin.register_tenant(tenant(tenant_name), registry)
    admin.issue_key(ApiKeyIssued(tenant=tenant_name, at_us=now_us(), key_id=key.key_id, key_sha256=key.sha256))
    late = RegistryReader(profile, client_id="late")
    registry = late.start()
    admin.register_model(model, registry)
    route = Route(alias=tenant_name, targets=(RouteTarget(model_version=version, percent=100.0),))
    admin.set_routes((*registry.routes.values(), route), registry, now_us=now_us(), reason="test")
    late.close()

    fresh = RegistryReader(profile, client_id="fresh")
    registry = fresh.start()
    fresh.close()
    found = registry.tenant_for_key(key.secret)
    assert found is not None
    assert found.tenant == tenant_name
    assert registry.tenant_for_key(key.secret[:-1] + "x") is None
    assert registry.models[version] == model
    assert registry.routes[tenant_name] == route
    # the running one gets there too, without being asked
    eventually(lambda: tenant_name in running.registry.routes, "the running registry hears of the route")
    running.close()
    assert tenant_name in changed[-1].tenants
    # registering the model made the tenant's work topic
    with LogReader(profile, client_id="test") as reader:
        assert reader.bounds(work_topic(model.deployment, tenant_name), 0) == (0, 0)


@pytest.mark.parametrize("tenant_first", [True, False])
def test_a_tenant_and_a_model_registered_by_two_who_do_not_know_of_each_other_have_their_work_topic(
    admin: LogAdmin, profile: BrokerProfile, tenant_name: str, tenant_first: bool
) -> None:
    before = Registry()  # both have looked before either wrote
    model = ModelRegistered(
        model_version=f"{tenant_name}@v1", at_us=now_us(), deployment=f"d-{tenant_name}", engine="echo",
        location="bytes", tokenizer="bytes", context_tokens=512, default_max_output_tokens=64,
    )  # fmt: skip
    if tenant_first:
        admin.register_tenant(tenant(tenant_name), before)
        admin.register_model(model, before)
    else:
        admin.register_model(model, before)
        admin.register_tenant(tenant(tenant_name), before)
    topic = work_topic(model.deployment, tenant_name)
    eventually(lambda: topic in admin.topic_names(), "the broker shows the topic")  # a busy one tells of it late


def test_a_record_that_cant_be_read_is_kept_with_its_origin(
    admin: LogAdmin, producer: EventProducer, profile: BrokerProfile, tenant_name: str
) -> None:
    admin.register_tenant(tenant(tenant_name), Registry())
    topic = requests_topic(tenant_name)
    value = b"\xc3\x01" + bytes(8) + b"body"
    producer.send_bytes(topic, value, key=b"k", headers=[], partition=3)
    assert producer.flush() == 0
    with LogReader(profile, client_id="test") as reader:
        (record,) = reader.read_to_end({(topic, 3): 0})
        with pytest.raises(UnknownSchema, match="0000000000000000") as caught:
            record.event()
        send_dead_letter(producer, record, caught.value, consumer="test", now_us=7)
        assert producer.flush() == 0
        (kept,) = reader.read_to_end({(dead_letters_topic(tenant_name), 0): 0})
    letter = kept.event()
    assert isinstance(letter, DeadLettered)
    assert (letter.origin_topic, letter.origin_partition, letter.origin_offset) == (topic, 3, 0)
    assert (letter.reason, letter.value, letter.key) == ("unknown_schema", value, b"k")
    assert letter.schema_fingerprint == "00" * 8


def test_nobody_at_the_address_is_a_clear_error() -> None:
    profile = BrokerProfile("127.0.0.1:1")
    with LogAdmin(profile, TOPICS) as admin, pytest.raises(LogUnreachable, match="no broker answers at 127"):
        admin.cluster_id(timeout_s=0.5)


async def test_an_on_delivery_that_raises_costs_nobody_else_his_acknowledgement(
    admin: LogAdmin, producer: EventProducer, tenant_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_failure: DeliveryFailed | None) -> None:
        raise ValueError("a fault of its owner's")

    admin.register_tenant(tenant(tenant_name), Registry())
    topic = requests_topic(tenant_name)
    producer.send(topic, cancelled(0, tenant_name), key="k", partition=0, on_delivery=broken)
    await producer.deliver(topic, cancelled(1, tenant_name), key="k", partition=0)
    await producer.deliver(topic, cancelled(2, tenant_name), key="k", partition=0)
    assert "a fault of its owner's" in caplog.text


@pytest.mark.integration  # the embedded broker makes the topic
async def test_a_topic_that_is_not_there_fails_the_delivery(producer: EventProducer, admin: LogAdmin) -> None:
    with pytest.raises(DeliveryFailed, match="no-such-topic"):
        await producer.deliver("no-such-topic", cancelled(1, "x"), key="k", partition=0)
