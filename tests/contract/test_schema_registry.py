"""Confluent framing with a real schema registry: what is put there, what others read of it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eventlog.admin import LogAdmin
from eventlog.errors import SchemaIdTaken, SchemaRefused, SchemaRegistryFailed
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from eventlog.schema_lookup import SchemaLookup
from eventlog.schema_registration import SchemaRegistrar
from eventlog.schema_registry import SchemaRegistry
from eventlog.schema_registry_address import RegistryAddress
from infra.cli import run
from infra.errors import SchemaIdsMissing
from infra.runtime.broker import BrokerChoice
from infra.schema_registry import needs_registration, register_schemas, subject_schemas
from infra.seed import read_registry
from infra.services import part_profile
from infra.settings import Settings
from infra.wiring import broker_profile
from schemas.catalog import AvroSchema, published_schema
from schemas.codec import SCHEMAS, Codec, full_name
from schemas.events import Message, RequestSubmitted, TokensGenerated
from schemas.releases import packaged_contract
from schemas.topics import Topics
from tests.brokers import Broker, started_broker
from tests.schema_registry import RunningRegistry, running_registry, schema_ids, stand_in

REQUEST = RequestSubmitted(
    request_id="r", tenant="acme", at_us=1, received_at_us=1, source="test", model="chat",
    messages=(Message(role="user", content="größe"), Message(role="user", content="")),
)  # fmt: skip
TOKENS = TokensGenerated(
    request_id="r", tenant="acme", at_us=5_000_000, attempt=1, index=0, token_ids=(1, 2), text_offset_chars=0, text="…"
)  # fmt: skip


@pytest.fixture(scope="module")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="module")
def address(schema_registry: RunningRegistry) -> RegistryAddress:
    return schema_registry.address


@pytest.fixture(scope="module")
def codec(address: RegistryAddress, profile: BrokerProfile) -> Codec:
    """Of whoever has registered everything."""
    codec = Codec("confluent")
    with LogAdmin(profile, Topics()) as admin:
        admin.create_shared_topics()
        register_schemas(address, admin, read_registry(profile, "test"), codec, now_us=1)
    return codec


@pytest.fixture
def client(address: RegistryAddress) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": address.url}) as client:
        yield client


def context() -> SerializationContext:
    return SerializationContext("requests.acme", MessageField.VALUE)


def newer_request() -> AvroSchema:
    schema = published_schema(RequestSubmitted)
    return {**schema, "fields": [*schema["fields"], {"name": "mood", "type": "string", "default": "calm"}]}


def test_every_release_is_registered_under_its_record_names_and_every_part_learns_the_ids(
    client: SchemaRegistryClient, codec: Codec, profile: BrokerProfile
) -> None:
    started_later = replace(profile, codec=Codec("confluent"))
    registry = read_registry(started_later, "test")

    assert not needs_registration(registry)
    assert codec.missing_ids() == started_later.codec.missing_ids() == []
    assert set(client.get_subjects()) == {full_name(event_type) for event_type in SCHEMAS}
    for event_type, ours in SCHEMAS.items():
        assert client.get_config(full_name(event_type)).compatibility_level == "FULL_TRANSITIVE"
        latest = client.get_latest_version(full_name(event_type))
        assert json.loads(latest.schema.schema_str or "") == ours.avro
        assert latest.schema_id is not None
        known = registry.schemas[latest.schema_id]
        assert (known.version, known.fingerprint) == (latest.version, ours.fingerprint)
        assert json.loads(known.avro) == ours.avro
    assert len(registry.schemas) == len(subject_schemas(packaged_contract()))


@pytest.mark.parametrize("event", [REQUEST, TOKENS])
def test_confluents_deserializer_reads_our_events(
    client: SchemaRegistryClient, codec: Codec, event: RequestSubmitted | TokensGenerated
) -> None:
    read = AvroDeserializer(client)

    record = read(codec.encode(event), context())

    assert isinstance(record, dict)
    assert record["request_id"] == "r"
    assert record["at_us"].timestamp() == event.at_us / 1e6
    if isinstance(event, RequestSubmitted):
        assert [message["content"] for message in record["messages"]] == ["größe", ""]


def test_our_codec_reads_what_confluents_serializer_writes(client: SchemaRegistryClient, codec: Codec) -> None:
    write = AvroSerializer(
        client,
        conf={
            "auto.register.schemas": False,
            "use.latest.version": True,
            "subject.name.strategy": record_subject_name_strategy,
        },
        schema_str=json.dumps(published_schema(RequestSubmitted)),
    )
    record = {**vars(REQUEST), "messages": [vars(message) for message in REQUEST.messages], "stop": []}

    data = write(record, context())

    assert data is not None
    assert data == codec.encode(REQUEST)
    assert codec.decode(data) == REQUEST


def test_a_version_that_another_service_registered_is_read(
    address: RegistryAddress, client: SchemaRegistryClient
) -> None:
    write = AvroSerializer(
        client,
        json.dumps(newer_request()),
        conf={"auto.register.schemas": True, "subject.name.strategy": lambda _context, _name: "somebody-elses"},
    )
    record = {**vars(REQUEST), "messages": [vars(message) for message in REQUEST.messages], "stop": [], "mood": "good"}
    data = write(record, context())
    assert data is not None
    with SchemaRegistry(address) as registry:
        reading = Codec(lookup=SchemaLookup(registry.schema))

        assert reading.decode(data) == REQUEST


def test_a_schema_that_is_not_compatible_is_refused(address: RegistryAddress, codec: Codec) -> None:
    schema = published_schema(TokensGenerated)
    broken = {**schema, "fields": [*schema["fields"], {"name": "no_default", "type": "string"}]}
    with SchemaRegistrar(address) as registrar, pytest.raises(SchemaRefused, match=r"TokensGenerated.*schemas check"):
        registrar.register(full_name(TokensGenerated), broken)


def test_the_command_registers_once(
    address: RegistryAddress,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("HEADRACE_BROKER", broker.profile.kind)
    monkeypatch.setenv("HEADRACE_SCHEMA_REGISTRY_URL", address.url)

    assert [run(["schemas", "register"]), run(["schemas", "register"])] == [0, 0]

    output = capsys.readouterr()
    assert "has its id in the log already" in output.out + output.err


def test_an_id_that_the_log_knows_for_another_schema_is_refused_and_nothing_is_written(
    address: RegistryAddress, codec: Codec, profile: BrokerProfile, admin: LogAdmin
) -> None:
    before = read_registry(profile, "test")
    taken = replace(next(iter(before.schemas.values())), subject="headrace.v1.SomethingElse")
    other_log = Registry(schemas={taken.schema_id: taken})

    with pytest.raises(SchemaIdTaken, match=r"SomethingElse.*another registry"):
        register_schemas(address, admin, other_log, codec, now_us=2)

    assert read_registry(profile, "test") == before


def test_a_registry_that_is_down_stops_a_deployment_with_the_way_out(profile: BrokerProfile, admin: LogAdmin) -> None:
    with stand_in() as registry:
        registry.close()
        with pytest.raises(SchemaRegistryFailed, match=rf"{registry.address.url}.*HEADRACE_SCHEMA_REGISTRY_URL"):
            register_schemas(registry.address, admin, Registry(), Codec("confluent"), now_us=1)


def test_what_is_no_registry_stops_a_deployment_too(profile: BrokerProfile, admin: LogAdmin) -> None:
    with stand_in() as registry, pytest.raises(SchemaRegistryFailed, match="501"):
        register_schemas(registry.address, admin, Registry(), Codec("confluent"), now_us=1)


def test_a_part_does_not_start_in_confluent_framing_before_the_log_knows_its_ids(tmp_path: Path) -> None:
    with started_broker(BrokerChoice(), tmp_path) as launch, stand_in() as registry:
        settings = Settings(
            kafka_bootstrap_servers=launch.bootstrap_servers,
            broker="embedded",
            schema_registry_url=registry.address.url,
        )
        with LogAdmin(broker_profile(settings), Topics()) as admin:
            admin.create_shared_topics()
            with pytest.raises(SchemaIdsMissing, match="headrace schemas register"):
                part_profile(settings)
            admin.register_schemas(schema_ids(first=1_000))

        profile = part_profile(settings)

        assert profile.codec.encode(TOKENS).startswith(b"\0")
        assert profile.codec.decode(profile.codec.encode(TOKENS)) == TOKENS
        assert registry.asked == []
