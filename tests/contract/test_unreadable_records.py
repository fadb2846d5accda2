"""Readers by assignment meet records that they can't read: they count them and go on, and write no letters."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from gpu_consumers.attempt_log import AttemptLog
from gpu_consumers.partition import HeldPartition
from gpu_consumers.work import Work
from schemas.errors import ContractError
from schemas.events import RequestSubmitted, TenantRegistered, TokenLogEvent
from schemas.ids import new_request_id, partition_of, request_id_of
from schemas.topics import CONTROL_TENANTS, TELEMETRY, dead_letters_topic, tokens_topic
from tests.brokers import Broker
from tests.contract.gateway_world import Step, World, echo, register_model, running_gateway, world
from tests.gateway_events import finished, started, tokens
from tests.strange_records import write_strange_records
from tests.timing import eventually, within
from tests.unit.gpu_consumers.test_generation import ORDER

POISON = {"undecodable": b"poison", "unknown_schema": b"\xc3\x01unknown!body"}


@pytest.fixture(scope="module")
def here(broker: Broker) -> Iterator[World]:
    register_model(broker.profile)
    with world(broker.profile) as made:
        yield made


def poison(producer: EventProducer, topic: str, partition: int, key: bytes) -> None:
    for value in POISON.values():
        producer.write(topic, partition, value, key=key, headers=[])


def counted(metrics: str, reader: str) -> dict[str, float]:
    """By reason, as /metrics of a gateway tells it."""
    found = {}
    for line in metrics.splitlines():
        for reason in POISON:
            labels = f'reader="{reader}",reason="{reason}"'
            if line.startswith("headrace:unreadable_records_total") and labels in line.replace(", ", ","):
                found[reason] = float(line.split()[-1])
    return found


def test_a_gateway_goes_on_behind_them_live_and_when_it_reads_back(here: World, producer: EventProducer) -> None:
    poisoned = threading.Event()

    def script(request: RequestSubmitted) -> Iterator[Step]:
        answer = echo(request)
        yield from answer[:3]
        yield poisoned
        yield from answer[3:]

    headers = {"authorization": f"Bearer {here.key}"}
    body = {"model": "chat", "input": "one two three", "background": True}
    here.upstream.script_for["chat"] = script
    with httpx.Client(base_url=here.gateway.http, headers=headers, timeout=within(30)) as http:
        response_id = http.post("/v1/responses", json=body).json()["id"]
        request_id = request_id_of(response_id)
        topic = tokens_topic(here.tenant)
        poison(producer, topic, partition_of(request_id), request_id.encode())
        poisoned.set()

        def answer(gateway: httpx.Client) -> str | None:
            found = gateway.get(f"/v1/responses/{response_id}").json()
            return found["output"][0]["content"][0]["text"] if found["status"] == "completed" else None

        assert eventually(lambda: answer(http), "it is answered", 30) == "one two three "
        assert counted(http.get("/metrics").text, "tail") == {"undecodable": 1, "unknown_schema": 1}
    with (
        running_gateway(here.settings) as another,
        httpx.Client(base_url=another.http, headers=headers, timeout=within(30)) as http,
    ):
        assert eventually(lambda: answer(http), "another gateway has it too", 30) == "one two three "
        assert counted(http.get("/metrics").text, "backfill") == {"undecodable": 1, "unknown_schema": 1}
    with LogReader(here.profile, client_id="test") as reader:
        assert list(reader.read_to_end({(dead_letters_topic(here.tenant), 0): 0})) == []


def test_a_registry_reader_goes_on_behind_them(
    profile: BrokerProfile, admin: LogAdmin, producer: EventProducer, tenant_name: str
) -> None:
    reasons: list[str] = []

    def unreadable(error: ContractError) -> None:
        reasons.append(error.code)

    reader = RegistryReader(profile, client_id="test", unreadable=unreadable)
    reader.start()
    before = len(reasons)
    poison(producer, CONTROL_TENANTS.name, 0, b"poison")
    event = TenantRegistered(
        tenant=tenant_name, at_us=now_us(), requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
    )
    admin.register_tenant(event, Registry())
    eventually(lambda: tenant_name in reader.registry.tenants, "the tenant behind them is known")
    reader.close()
    assert reader.failure is None
    assert sorted(reasons[before:]) == sorted(POISON)


def test_a_workers_recovery_goes_on_behind_them(
    profile: BrokerProfile, admin: LogAdmin, producer: EventProducer, tenant_name: str
) -> None:
    reasons: list[str] = []
    request_id = new_request_id(now_ms=1, partition=2, entropy=5)
    event = TenantRegistered(
        tenant=tenant_name, at_us=now_us(), requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
    )
    admin.register_tenant(event, Registry())
    submitted = RequestSubmitted(
        request_id=request_id, tenant=tenant_name, at_us=1, received_at_us=1, source="t", model="m", messages=()
    )
    topic = tokens_topic(tenant_name)
    begun: list[TokenLogEvent] = [started(submitted), *tokens(submitted, ["A"])]
    for log_event in begun:
        producer.send(topic, log_event, key=request_id, partition=2)
    poison(producer, topic, 2, request_id.encode())
    producer.send(topic, finished(submitted, 1), key=request_id, partition=2)
    assert producer.flush(within(10)) == 0
    order = {**vars(ORDER), "request_id": request_id, "tenant": tenant_name}
    work = Work(type(ORDER)(**order), HeldPartition("work", 0), 0, now_ms(), 0)
    with LogReader(profile, client_id="test") as reader:
        found = AttemptLog(reader, unreadable=lambda error: reasons.append(error.code)).read([work])
    assert found[request_id].log.text == "A"
    assert found[request_id].log.terminal is not None
    assert sorted(reasons) == sorted(POISON)


async def test_records_whose_header_has_no_name_that_can_be_read_come_without_headers(
    profile: BrokerProfile, admin: LogAdmin
) -> None:
    values = [str(number).encode() for number in range(200)]  # Python calls otherwise once it is warm
    await write_strange_records(profile.bootstrap_servers, TELEMETRY.name, 0, values)
    with LogReader(profile, client_id="test") as reader:
        # A gateway of another test reports there too.
        records = [record for record in reader.read_to_end({(TELEMETRY.name, 0): 0}) if record.value in values]
    assert [record.value for record in records] == values
    assert all(record.headers == [] for record in records)
