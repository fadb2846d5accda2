"""A request that nobody could read is kept, nothing waits behind it, and it is answered once it can be read."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from infra.credentials import DEMO_TENANT
from schemas.codec import SCHEMAS, Codec
from schemas.errors import ContractError
from schemas.events import DeadLettered, Event, GenerationFinished, Message, RequestSubmitted, SchemaRegistered
from schemas.ids import RANDOM_BITS, new_request_id
from schemas.topics import TELEMETRY, Topics, dead_letters_topic, lifecycle_topic, requests_topic, tokens_topic
from tests.brokers import Broker
from tests.journey.system import System, running_system
from tests.timing import eventually, within

pytestmark = pytest.mark.slow

SCHEMA_ID = 4_711
TOPIC = requests_topic(DEMO_TENANT)


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


def test_a_request_in_an_unknown_schema_is_answered_when_it_is_requeued_behind_its_schema(
    broker: Broker, tmp_path: Path
) -> None:
    profile = broker.profile
    fingerprint = SCHEMAS[RequestSubmitted].fingerprint
    stranger = Codec("confluent")  # of a service that knows more than we do
    assert stranger.learn_ours(SCHEMA_ID, fingerprint)
    early, behind = request(), request()
    with running_system(broker, tmp_path) as system, EventProducer(profile, client_id="test") as producer:
        offset = producer.write(TOPIC, 0, stranger.encode(early), key=early.request_id.encode(), headers=[])
        producer.send(TOPIC, behind, key=behind.request_id, partition=0)
        name = f"{TOPIC}/0/{offset}"
        eventually(lambda: is_answered(profile, behind), "the request behind it is answered", 30)
        eventually(lambda: open_letters(system) == {name}, "it is a letter", 30)
        status, said = requeue(system, name)
        assert status == 1
        assert "still can't be read: no schema is known by the id 4711" in said

        schema = SchemaRegistered(
            subject="headrace.v1.RequestSubmitted", at_us=now_us(), schema_id=SCHEMA_ID, version=1,
            fingerprint=fingerprint,
        )  # fmt: skip
        with LogAdmin(profile, Topics()) as admin:
            admin.register_schemas([schema])
        status, said = requeue(system, name, "--dry-run")
        assert (status, said) == (0, f"{name}\twould go to {TOPIC}/0: RequestSubmitted\n")
        assert requeue(system, "--tenant", DEMO_TENANT)[0] == 0

        def answered() -> bool:
            # the command may know of the schema a moment before the stage does: then there is another letter
            if not is_answered(profile, early) and open_letters(system):
                assert requeue(system, "--tenant", DEMO_TENANT)[0] == 0
            return is_answered(profile, early)

        eventually(answered, "it is answered", 30)
        assert name not in open_letters(system)
        sink_keeps_what_nobody_else_does(system, profile, producer)


def sink_keeps_what_nobody_else_does(system: System, profile: BrokerProfile, producer: EventProducer) -> None:
    """Events of a type that is not known yet, in topics that no group reads but the sink's."""
    unknown = b"\xc3\x01unknown!body"
    topics = {tokens_topic(DEMO_TENANT): 1, lifecycle_topic(DEMO_TENANT): 0, TELEMETRY.name: 0}
    for topic, partition in topics.items():
        producer.write(topic, partition, unknown, key=b"k", headers=[])
    late = request()
    producer.send(TOPIC, late, key=late.request_id)
    eventually(lambda: is_answered(profile, late), "requests go on", 30)

    def kept() -> set[str]:
        events = read(profile, dead_letters_topic(DEMO_TENANT), 0) + read(profile, dead_letters_topic("_system"), 0)
        return {e.origin_topic for e in events if isinstance(e, DeadLettered) and e.value == unknown}

    eventually(lambda: kept() == set(topics), "each is a letter", 30)
    query = "SELECT reason, consumer, count() FROM headrace.dead_letters WHERE consumer = 'sink' GROUP BY ALL"
    eventually(
        lambda: "unknown_schema sink 3" in " ".join(system.headrace("sql", query).split()), "the view has them", 30
    )
