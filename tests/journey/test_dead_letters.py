"""What nobody can read is kept and holds up nobody, in a whole running system; a request is answered once it can be."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from infra.credentials import DEMO_TENANT
from infra.seed import read_registry
from schemas.codec import SCHEMAS, Codec, encode
from schemas.errors import ContractError
from schemas.events import DeadLettered, Event, GenerationFinished, Message, RequestSubmitted, SchemaRegistered
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
from tests.strange_records import write_strange_records
from tests.timing import eventually, within

pytestmark = pytest.mark.slow

SCHEMA_ID = 4_711
TOPIC = requests_topic(DEMO_TENANT)


@dataclass(frozen=True, slots=True)
class World:
    system: System
    profile: BrokerProfile
    producer: EventProducer


@pytest.fixture(scope="module")
def world(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("letters")
    with running_system(broker, directory) as system, EventProducer(broker.profile, client_id="test") as producer:
        yield World(system, broker.profile, producer)


def request() -> RequestSubmitted:
    request_id = new_request_id(now_ms=now_ms(), partition=1, entropy=secrets.randbits(RANDOM_BITS))
    return RequestSubmitted(
        request_id=request_id, tenant=DEMO_TENANT, at_us=now_us(), received_at_us=now_us(), source="a service",
        model="echo", messages=(Message(role="user", content="hello"),), max_output_tokens=4,
    )  # fmt: skip


def read(profile: BrokerProfile, topic: str, partition: int) -> list[Event]:
    """What can be read of it."""
    events = []
    with LogReader(profile, client_id="test") as reader:
        for record in reader.read_to_end({(topic, partition): 0}):
            try:
                events.append(record.event())
            except ContractError:
                continue
    return events


def is_answered(profile: BrokerProfile, request: RequestSubmitted) -> bool:
    events = read(profile, tokens_topic(DEMO_TENANT), 1)
    return any(isinstance(e, GenerationFinished) and e.request_id == request.request_id for e in events)


def letters_of(profile: BrokerProfile, value: bytes) -> set[str]:
    """Topics of which there are letters with these bytes."""
    events = read(profile, dead_letters_topic(DEMO_TENANT), 0) + read(profile, dead_letters_topic("_system"), 0)
    return {e.origin_topic for e in events if isinstance(e, DeadLettered) and e.value == value}


def requeue(system: System, *arguments: str) -> tuple[int, str]:
    """The exit status and the output of `headrace dead-letters requeue`."""
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "dead-letters", "requeue", *arguments],
        env=system.environment, capture_output=True, text=True, timeout=within(60), check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def open_letters(system: System) -> set[str]:
    lines = system.headrace("dead-letters", "list", "--tenant", DEMO_TENANT).splitlines()[1:]
    return {line.split("\t")[0] for line in lines}


def test_a_request_in_an_unknown_schema_is_answered_when_it_is_requeued_behind_its_schema(world: World) -> None:
    system, profile, producer = world.system, world.profile, world.producer
    fingerprint = SCHEMAS[RequestSubmitted].fingerprint
    stranger = Codec("confluent")  # of a service that knows more than we do
    assert stranger.learn_ours(SCHEMA_ID, fingerprint)
    early, behind = request(), request()
    offset = producer.write(TOPIC, 0, stranger.encode(early), key=early.request_id.encode(), headers=[])
    producer.send(TOPIC, behind, key=behind.request_id, partition=0)
    name = f"{TOPIC}/0/{offset}"
    eventually(lambda: is_answered(profile, behind), "the request behind it is answered", 30)
    eventually(lambda: open_letters(system) == {name}, "it is a letter", 30)
    status, said = requeue(system, name)
    assert status == 1
    assert "still cannot be read: no schema is known by the id 4711" in said

    schema = SchemaRegistered(
        subject="headrace.v1.RequestSubmitted", at_us=now_us(), schema_id=SCHEMA_ID, version=1, fingerprint=fingerprint
    )  # fmt: skip
    with LogAdmin(profile, Topics()) as admin:
        admin.register_schemas([schema])
    assert requeue(system, name, "--dry-run") == (0, f"{name}\twould go to {TOPIC}/0: RequestSubmitted\n")
    assert requeue(system, "--tenant", DEMO_TENANT)[0] == 0

    def answered() -> bool:
        # the command may know of the schema a moment before the stage does: then there is another letter
        if not is_answered(profile, early) and open_letters(system):
            assert requeue(system, "--tenant", DEMO_TENANT)[0] == 0
        return is_answered(profile, early)

    eventually(answered, "it is answered", 30)
    assert name not in open_letters(system)
    rows = f"SELECT count() FROM headrace.events WHERE topic = '{TOPIC}' AND request_id = '{early.request_id}'"
    eventually(lambda: system.headrace("sql", rows).split()[-1] != "0", "the sink has learned the schema too", 30)


def test_an_event_of_a_type_that_is_not_known_yet_is_kept_by_the_sink_where_no_other_group_reads(world: World) -> None:
    unknown = b"\xc3\x01unknown!body"
    topics = {tokens_topic(DEMO_TENANT): 1, lifecycle_topic(DEMO_TENANT): 0, TELEMETRY.name: 0, CONTROL_MODELS.name: 0}
    for topic, partition in topics.items():
        world.producer.write(topic, partition, unknown, key=b"k", headers=[])
    late = request()
    world.producer.send(TOPIC, late, key=late.request_id)
    eventually(lambda: is_answered(world.profile, late), "requests go on", 30)
    eventually(lambda: letters_of(world.profile, unknown) == set(topics), "each is a letter", 30)
    query = "SELECT reason, consumer, count() FROM headrace.dead_letters WHERE consumer = 'sink' GROUP BY ALL"
    eventually(
        lambda: "unknown_schema sink 4" in " ".join(world.system.headrace("sql", query).split()),
        "the view has them", 30,
    )  # fmt: skip


async def test_nobody_stops_at_a_record_whose_header_has_no_name_that_can_be_read(world: World) -> None:
    (deployment,) = read_registry(world.profile, "test").deployments
    topics = {
        TOPIC: 0, VALIDATED.name: 0, work_topic(deployment, DEMO_TENANT): 0, tokens_topic(DEMO_TENANT): 1,
        CONTROL_TENANTS.name: 0, TELEMETRY.name: 0,
    }  # fmt: skip
    strange = request()
    for topic, partition in topics.items():
        values = [b"strange", encode(strange)] if topic == TOPIC else [b"strange"]
        await write_strange_records(world.profile.bootstrap_servers, topic, partition, values)
    behind = [request() for _ in range(8)]
    for number, one in enumerate(behind):
        world.producer.send(TOPIC, one, key=one.request_id, partition=number % 4)
    for one in [strange, *behind]:
        eventually(lambda: is_answered(world.profile, one), "it is answered", 30)  # noqa: B023
    eventually(lambda: letters_of(world.profile, b"strange") == set(topics), "each is a letter", 30)
    assert "restarting" not in (world.system.data_dir.parent / "up.log").read_text()
