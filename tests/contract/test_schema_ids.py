"""Schema ids reach every part by the log: before what they stand before, and without a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import fastavro
import pytest

from eventlog.admin import LogAdmin
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from infra.schema_registry import publish_schemas
from infra.seed import read_registry
from schemas.catalog import AvroSchema, avro_fingerprint, published_schema, single_object_header
from schemas.codec import SCHEMAS, Codec, confluent_header
from schemas.events import SchemaPublished, SchemaRegistered, TenantRegistered
from schemas.topics import CONTROL_TENANTS, Topics
from tests.schema_registry import schema_ids
from tests.timing import eventually

OURS = published_schema(TenantRegistered)
NEWER: AvroSchema = {**OURS, "fields": [*OURS["fields"], {"name": "mood", "type": "string", "default": "calm"}]}


def tenant(name: str) -> TenantRegistered:
    return TenantRegistered(
        tenant=name, at_us=1, requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
    )


@pytest.fixture(scope="module")
def confluent(profile: BrokerProfile) -> BrokerProfile:
    """Writes in Confluent framing; the log knows all ids."""
    with LogAdmin(profile, Topics()) as admin:
        admin.create_shared_topics()
        admin.register_schemas(schema_ids(first=100))
    confluent = replace(profile, codec=Codec("confluent"))
    read_registry(confluent, "test")
    return confluent


@pytest.fixture
def confluent_admin(confluent: BrokerProfile) -> Iterator[LogAdmin]:
    with LogAdmin(confluent, Topics()) as admin:
        yield admin


def registered(**fields: object) -> SchemaRegistered:
    event = SchemaRegistered(
        subject="headrace.v1.TenantRegistered", at_us=2, schema_id=700, version=2,
        fingerprint=avro_fingerprint(NEWER), avro=json.dumps(NEWER),
    )  # fmt: skip
    return replace(event, **fields)  # type: ignore[arg-type]


def test_a_part_that_starts_reads_what_was_written_in_confluent_framing_before(
    profile: BrokerProfile, confluent_admin: LogAdmin, tenant_name: str
) -> None:
    confluent_admin.register_tenant(tenant(tenant_name), Registry())

    for framing in ("single-object", "confluent"):
        starting = replace(profile, codec=Codec(framing))
        assert read_registry(starting, "test").tenants[tenant_name] == tenant(tenant_name)


def test_a_part_that_runs_reads_a_newer_release_whose_schemas_were_registered_meanwhile(
    profile: BrokerProfile, confluent_admin: LogAdmin, tenant_name: str
) -> None:
    running = RegistryReader(replace(profile, codec=Codec("confluent")), client_id="test")
    running.start()
    body = BytesIO()
    fastavro.schemaless_writer(
        body, fastavro.parse_schema(dict(NEWER)), {**vars(tenant(tenant_name)), "mood": "new"}
    )  # fmt: skip
    try:
        confluent_admin.register_schemas([registered()])
        eventually(lambda: 700 in running.registry.schemas, "the id is known")
        with EventProducer(profile, client_id="test") as newer:
            newer.send_bytes(
                CONTROL_TENANTS.name, confluent_header(700) + body.getvalue(), key=b"k", headers=[], partition=0
            )
        found = eventually(lambda: running.registry.tenants.get(tenant_name), "the newer record is read")
        started_later = read_registry(replace(profile, codec=Codec("confluent")), "test")
    finally:
        running.close()

    assert found == started_later.tenants[tenant_name] == tenant(tenant_name)


def test_an_older_part_reads_what_a_newer_release_writes_once_its_schemas_are_published(
    profile: BrokerProfile, tenant_name: str
) -> None:
    """Single-object encoding, and no schema registry anywhere."""
    unread: list[str] = []
    running = RegistryReader(
        replace(profile, codec=Codec()), client_id="test", unreadable=lambda error: unread.append(error.code)
    )
    running.start()
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(NEWER)), {**vars(tenant(tenant_name)), "mood": "new"})
    newer_record = single_object_header(NEWER) + body.getvalue()
    try:
        with LogAdmin(profile, Topics()) as admin, EventProducer(profile, client_id="test") as newer:
            admin.create_shared_topics()
            newer.send_bytes(CONTROL_TENANTS.name, newer_record, key=b"before", headers=[], partition=0)
            newer.flush()
            eventually(lambda: "unknown_schema" in unread, "before, it is passed over and counted")
            admin.publish_schemas([published(NEWER)])
            eventually(lambda: avro_fingerprint(NEWER) in running.registry.published, "the schema is known")
            newer.send_bytes(CONTROL_TENANTS.name, newer_record, key=b"after", headers=[], partition=0)
        found = eventually(lambda: running.registry.tenants.get(tenant_name), "the newer record is read")
    finally:
        running.close()

    assert found == tenant(tenant_name)


def test_the_schemas_of_a_release_are_published_once(profile: BrokerProfile) -> None:
    with LogAdmin(profile, Topics()) as admin:
        admin.create_shared_topics()
        publish_schemas(admin, read_registry(profile, "test"), now_us=1)
        assert publish_schemas(admin, read_registry(profile, "test"), now_us=2) == []
    known = read_registry(profile, "test").published
    assert {schema.fingerprint for schema in SCHEMAS.values()} <= known


def published(avro: AvroSchema) -> SchemaPublished:
    return SchemaPublished(
        subject="headrace.v1.TenantRegistered", at_us=2, fingerprint=avro_fingerprint(avro), avro=json.dumps(avro)
    )


@pytest.mark.parametrize(
    "avro", ["no JSON", "[" * 100_000, '{"type": "record", "name": "x.RequestPaused", "fields": []}']
)
def test_a_published_schema_that_teaches_nothing_ends_no_reader(
    profile: BrokerProfile, tenant_name: str, avro: str
) -> None:
    running = RegistryReader(replace(profile, codec=Codec()), client_id="test")
    running.start()
    try:
        with LogAdmin(profile, Topics()) as admin:
            admin.publish_schemas([replace(published(NEWER), avro=avro)])
            admin.register_tenant(tenant(tenant_name), Registry())
        eventually(lambda: tenant_name in running.registry.tenants, "it goes on")
    finally:
        running.close()

    assert running.failure is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema_id": -5},
        {"schema_id": -5, "fingerprint": avro_fingerprint(OURS)},
        {"fingerprint": "no hex"},
        {"avro": "no JSON"},
        {"avro": "[" * 100_000},
        {"avro": '{"type": "record", "name": "headrace.v1.RequestPaused", "fields": []}'},
    ],
)
def test_a_record_that_teaches_nothing_ends_no_reader(
    confluent: BrokerProfile, confluent_admin: LogAdmin, tenant_name: str, wrong: dict[str, object]
) -> None:
    running = RegistryReader(replace(confluent, codec=Codec("confluent")), client_id="test")
    running.start()
    try:
        confluent_admin.register_schemas([registered(**{"schema_id": 800, **wrong})])
        confluent_admin.register_tenant(tenant(tenant_name), Registry())
        eventually(lambda: tenant_name in running.registry.tenants, "it goes on")
    finally:
        running.close()

    assert running.failure is None
