"""headrace_client with a schema registry: Confluent framing out, both framings in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eventlog.admin import LogAdmin
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from headrace_client import Producer, RegistryFailed
from infra.runtime.ports import free_port
from infra.schema_registry import register_schemas
from infra.seed import read_registry
from schemas.codec import Codec
from schemas.ids import partition_of
from schemas.topics import Topics, requests_topic, tokens_topic
from tests.contract.gateway_world import TOPICS, FakeUpstream, register_tenant
from tests.schema_registry import RunningRegistry, running_registry, stand_in
from tests.timing import within

QUICK = {"fetch.wait.max.ms": 5}


@pytest.fixture(scope="module")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="module")
def codec(schema_registry: RunningRegistry, profile: BrokerProfile) -> Codec:
    """Of a deployment that has registered its schemas."""
    codec = Codec("confluent")
    with LogAdmin(profile, Topics()) as admin:
        admin.create_shared_topics()
        register_schemas(schema_registry.address, admin, read_registry(profile, "test"), codec, now_us=1)
    return codec


def first_bytes(profile: BrokerProfile, topic: str, partitions: range) -> set[bytes]:
    with LogReader(profile, client_id="test") as reader:
        return {record.value[:1] for record in reader.read_to_end({(topic, number): 0 for number in partitions})}


@pytest.mark.parametrize("answers_in", ["confluent", "single-object"])
def test_requests_go_out_with_the_registrys_ids_and_answers_are_read_in_either_framing(
    schema_registry: RunningRegistry, codec: Codec, profile: BrokerProfile, answers_in: str
) -> None:
    tenant = f"c-{secrets.token_hex(4)}"
    register_tenant(profile, tenant)
    theirs = codec
    if answers_in == "single-object":  # a part that reads both and writes without ids
        theirs = Codec()
        read_registry(replace(profile, codec=theirs), "test")
    with (
        FakeUpstream(replace(profile, codec=theirs), [tenant]),
        Producer(
            profile.bootstrap_servers, source="test", schema_registry_url=schema_registry.address.url,
            kafka_consumer=QUICK,
        ) as producer,
    ):  # fmt: skip
        asked = producer.submit(tenant=tenant, model="chat", prompt="one two")
        answer = producer.answer(asked, timeout=within(30))

    assert answer.text == "one two "
    assert asked.request.messages[0].content == "one two"
    assert first_bytes(profile, requests_topic(tenant), range(TOPICS.requests)) == {b"\0"}
    mine = range(partition_of(asked.request_id), partition_of(asked.request_id) + 1)
    expected = b"\0" if answers_in == "confluent" else b"\xc3"
    assert first_bytes(profile, tokens_topic(tenant), mine) == {expected}


def test_a_registry_that_is_not_there_or_knows_no_schemas_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(RegistryFailed, match="does not answer"):
        Producer("127.0.0.1:1", source="test", schema_registry_url=f"http://127.0.0.1:{free_port()}")
    with stand_in() as empty, pytest.raises(RegistryFailed):
        Producer("127.0.0.1:1", source="test", schema_registry_url=empty.address.url)
