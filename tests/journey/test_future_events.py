"""Events of a release that is not there yet, in both framings, wherever one can be: nobody dies, nobody waits.

What has a known type is read by what is known of it; what has not is passed over or kept as a dead letter.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from infra.seed import read_registry
from schemas.catalog import AvroSchema, published_schema, single_object_header
from schemas.codec import Codec, confluent_header
from schemas.events import (
    DeadLettered,
    Event,
    GenerationFinished,
    Message,
    RequestSubmitted,
    TenantRegistered,
)
from schemas.ids import RANDOM_BITS, new_request_id
from schemas.topics import (
    CONTROL_MODELS,
    CONTROL_TENANTS,
    TELEMETRY,
    VALIDATED,
    Topics,
    dead_letters_topic,
    lifecycle_topic,
    requests_topic,
    tokens_topic,
    work_topic,
)
from tests.brokers import Broker
from tests.journey.system import System, running_system
from tests.schema_registry import Reply, StandIn, schema_ids, stand_in
from tests.timing import eventually

pytestmark = pytest.mark.slow
TOPICS = Topics()
OUR_IDS, NEWER_REQUEST, NEWER_TENANT, PAUSED, NOWHERE = 100, 501, 502, 503, 504


def newer(event_type: type[Event]) -> AvroSchema:
    """What the next release may make of it."""
    schema = published_schema(event_type)
    return {**schema, "fields": [*schema["fields"], {"name": "mood", "type": "string", "default": "calm"}]}


PAUSED_SCHEMA: AvroSchema = {
    "type": "record", "name": "RequestPaused", "namespace": "headrace.v1",
    "fields": [{"name": "request_id", "type": "string"}, {"name": "at_us", "type": "long"}],
}  # fmt: skip


def body(avro: AvroSchema, record: Mapping[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(avro)), record)
    return out.getvalue()


def future_events() -> list[bytes]:
    paused = body(PAUSED_SCHEMA, {"request_id": "r", "at_us": 1})
    return [
        single_object_header(PAUSED_SCHEMA) + paused,  # a new type
        confluent_header(PAUSED) + paused,
        confluent_header(NOWHERE) + paused,
        single_object_header(newer(RequestSubmitted)) + b"\0",  # a newer version that nobody can be asked for
    ]


@dataclass(frozen=True, slots=True)
class World:
    """A system in Confluent framing, a tenant with a key, and the registry of those who write to it."""

    system: System
    profile: BrokerProfile
    producer: EventProducer
    registry: StandIn
    key: str
    newer_request_id: str

    def write(self, topic: str, value: bytes, partition: int = 0, key: bytes = b"k") -> None:
        self.producer.send_bytes(topic, value, key=key, headers=[], partition=partition)
        assert self.producer.flush() == 0

    def read(self, topic: str, partitions: int) -> list[Event]:
        """What can be read of it."""
        with LogReader(self.profile, client_id="test") as reader:
            records = list(reader.read_to_end({(topic, partition): 0 for partition in range(partitions)}))
        future = set(future_events())
        return [record.event() for record in records if record.value not in future]

    def ask(self, text: str) -> str:
        return self.system.ask(self.key, text)


def disturb(world: World) -> None:
    """Future events into every partition of every topic, and what a newer release would write of what is known."""
    (deployment,) = read_registry(world.profile, "test").deployments
    of_four = (requests_topic("acme"), VALIDATED.name, tokens_topic("acme"), work_topic(deployment, "acme"))
    of_one = (CONTROL_TENANTS.name, CONTROL_MODELS.name, lifecycle_topic("acme"), TELEMETRY.name)
    for value in future_events():
        for topic, partition in [*((t, p) for t in of_four for p in range(4)), *((t, 0) for t in of_one)]:
            world.write(topic, value, partition)
    tenant = {**vars(read_registry(world.profile, "test").tenants["acme"]), "requests_per_minute": 4_321}
    value = confluent_header(NEWER_TENANT) + body(newer(TenantRegistered), {**tenant, "mood": "new"})
    world.write(CONTROL_TENANTS.name, value, key=b"acme")
    submit_with_a_newer_schema(world)


def submit_with_a_newer_schema(world: World) -> None:
    request_id = world.newer_request_id
    request = RequestSubmitted(
        request_id=request_id, tenant="acme", at_us=now_us(), received_at_us=now_us(), source="a newer service",
        model="echo", messages=(Message(role="user", content="newer"),), max_output_tokens=4,
    )  # fmt: skip
    record = {**vars(request), "messages": [vars(message) for message in request.messages], "mood": "good"}
    value = confluent_header(NEWER_REQUEST) + body(newer(RequestSubmitted), record)
    world.write(requests_topic("acme"), value, partition=2, key=request_id.encode())


@pytest.fixture(scope="module")
def world(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("future")
    profile = BrokerProfile(broker.bootstrap_servers, broker.profile.kind, codec=Codec("confluent"))
    with stand_in() as registry, LogAdmin(profile, TOPICS) as admin:
        registry.replies |= {
            NEWER_REQUEST: Reply.schema(newer(RequestSubmitted)),
            NEWER_TENANT: Reply.schema(newer(TenantRegistered)),
            PAUSED: Reply.schema(PAUSED_SCHEMA),
        }
        admin.create_shared_topics()
        admin.register_schemas(schema_ids(OUR_IDS))
        with running_system(broker, directory, HEADRACE_SCHEMA_REGISTRY_URL=registry.address.url) as system:
            key = system.add_tenant("acme")
            read_registry(profile, "test")  # its codec learns the ids
            with EventProducer(profile, client_id="test") as producer:
                request_id = new_request_id(now_ms=now_ms(), partition=2, entropy=secrets.randbits(RANDOM_BITS))
                world = World(system, profile, producer, registry, key, request_id)
                assert world.ask("before") == "beforebe"
                disturb(world)
                yield world


def is_answered(world: World, request_id: str) -> bool:
    events = world.read(tokens_topic("acme"), 4)
    return any(isinstance(event, GenerationFinished) and event.request_id == request_id for event in events)


def test_parts_go_on_and_answer(world: World) -> None:
    assert [world.ask(text) for text in ("after", "again")] == ["afteraft", "againaga"]


def test_a_request_of_a_newer_version_is_answered(world: World) -> None:
    eventually(lambda: is_answered(world, world.newer_request_id), "it has its terminal event", 30)


def test_a_newer_tenant_record_is_taken_over(world: World) -> None:
    assert "acme\t4321" in world.system.headrace("tenants", "list")


def letters(world: World) -> list[DeadLettered]:
    return [event for event in world.read(dead_letters_topic("acme"), 1) if isinstance(event, DeadLettered)]


def reasons(world: World) -> set[tuple[str, str]]:
    """(kind of topic, reason) of the dead letters."""
    return {(letter.origin_topic.partition(".")[0], letter.reason) for letter in letters(world)}


def test_what_is_not_known_is_kept_with_the_reason(world: World) -> None:
    codes = ("unknown_schema", "unknown_event_type")

    eventually(
        lambda: reasons(world) >= {(topic, code) for topic in ("requests", "work") for code in codes},
        "letters of validate and the worker",
    )
    assert {NOWHERE, PAUSED} <= {letter.schema_id for letter in letters(world)}
    assert world.registry.asked.count(PAUSED) <= 8  # each process once


def test_behind_an_id_that_the_registry_does_not_answer_requests_go_on(world: World) -> None:
    released = threading.Event()
    world.registry.replies |= {600: Reply(after=released), 601: Reply(500, b"<html>out of order</html>")}
    for schema_id in (600, 601):
        for partition in range(4):
            world.write(requests_topic("acme"), confluent_header(schema_id) + b"\0", partition)

    assert world.ask("still") == "stillsti"
    assert not released.is_set()
    eventually(
        lambda: ("requests", "schema_registry_unavailable") in reasons(world),
        "they are dead letters with a reason of their own",
    )
    released.set()


def test_the_sink_has_rows_of_both(world: World) -> None:
    question = "SELECT countIf(event_type = 'RequestSubmitted' AND payload LIKE '%a newer service%'), " \
               "countIf(decode_error != '') > 0 FROM headrace.events"  # fmt: skip

    eventually(
        lambda: world.system.headrace("sql", question).split()[-2:] in (["1", "1"], ["1", "true"]),
        "the newer request is a row like any other, and bytes that could not be read are there too",
        30,
    )
