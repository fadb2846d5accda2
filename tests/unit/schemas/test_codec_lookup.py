"""Schema ids that the codec was not told: it asks, and reads what others write with schemas of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas.catalog import AvroSchema, avro_fingerprint, parsed_schema, published_schema
from schemas.codec import SCHEMAS, Codec, confluent_header, schema_id_in
from schemas.errors import (
    ContractError,
    SchemaRegistryUnavailable,
    UndecodableEvent,
    UnknownEventType,
    UnknownSchema,
    UnusableSchema,
)
from schemas.events import RequestCancelled, SchemaRegistered
from tests.timing import eventually, within

OURS = published_schema(RequestCancelled)
EVENT = RequestCancelled(request_id="r", tenant="acme", at_us=5, reason="client")
NEWER: AvroSchema = {**OURS, "fields": [*OURS["fields"], {"name": "hint", "type": "string", "default": ""}]}
OTHER: AvroSchema = {"type": "record", "name": "RequestPaused", "namespace": "headrace.v1", "fields": []}


class Registry:
    """Knows schemas by id."""

    def __init__(self, **schemas: AvroSchema) -> None:
        self.schemas = {int(name[1:]): avro for name, avro in schemas.items()}
        self.asked: list[int] = []

    def __call__(self, schema_id: int) -> AvroSchema:
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise UnknownSchema(f"no schema {schema_id}", schema_id=schema_id)
        return self.schemas[schema_id]


def written(avro: AvroSchema, record: dict[str, Any], schema_id: int) -> bytes:
    """What a foreign Confluent serializer makes of it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(avro)), record)
    return confluent_header(schema_id) + out.getvalue()


def test_an_event_with_an_id_that_the_registry_knows_is_read() -> None:
    registry = Registry(_7=OURS)
    codec = Codec(lookup=registry)
    data = written(OURS, vars(EVENT), 7)

    assert [codec.decode(data), codec.decode(data)] == [EVENT, EVENT]
    assert registry.asked == [7]


def test_what_a_newer_writer_knows_more_is_dropped() -> None:
    codec = Codec(lookup=Registry(_8=NEWER))

    assert codec.decode(written(NEWER, {**vars(EVENT), "hint": "later"}, 8)) == EVENT


def test_another_type_of_event_is_asked_for_once() -> None:
    registry = Registry(_9=OTHER)
    codec = Codec(lookup=registry)
    for _ in range(2):
        with pytest.raises(UnknownEventType, match="RequestPaused") as caught:
            codec.decode(written(OTHER, {}, 9))
        assert caught.value.schema_id == 9

    assert registry.asked == [9]


def test_a_schema_that_can_not_be_read_is_asked_for_once() -> None:
    registry = Registry(_9={"type": "record", "name": "headrace.v1.RequestCancelled", "fields": "none"})
    codec = Codec(lookup=registry)
    for _ in range(2):
        with pytest.raises(UnusableSchema):
            codec.decode(confluent_header(9))

    assert registry.asked == [9]


@pytest.mark.parametrize("error", [UnknownSchema("none", schema_id=5), SchemaRegistryUnavailable("down", schema_id=5)])
def test_an_id_that_was_not_answered_is_asked_for_again(error: ContractError) -> None:
    answers: list[ContractError | AvroSchema] = [error, OURS]

    def lookup(schema_id: int) -> AvroSchema:
        answer = answers.pop(0)
        if isinstance(answer, ContractError):
            raise answer
        return answer

    codec = Codec(lookup=lookup)
    data = written(OURS, vars(EVENT), 5)
    with pytest.raises(type(error)):
        codec.decode(data)

    assert codec.decode(data) == EVENT


def test_without_anybody_to_ask_an_unknown_id_is_an_unknown_schema() -> None:
    with pytest.raises(UnknownSchema, match="id 5") as caught:
        Codec().decode(written(OURS, vars(EVENT), 5))

    assert caught.value.schema_id == 5


def test_known_ids_are_read_while_another_is_asked_for() -> None:
    asked, released = threading.Event(), threading.Event()

    def lookup(schema_id: int) -> AvroSchema:
        asked.set()
        assert released.wait(within(30))
        return OURS

    codec = Codec(lookup=lookup)
    codec.learn_ours(7, SCHEMAS[RequestCancelled].fingerprint)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(codec.decode, written(OURS, vars(EVENT), 5))
        eventually(asked.is_set, "the unknown id is asked for")
        assert codec.decode(written(OURS, vars(EVENT), 7)) == EVENT
        assert not slow.done()
        released.set()
        assert slow.result(within(30)) == EVENT


def test_an_id_of_our_own_is_written_when_it_is_known_and_read_without_asking() -> None:
    registry = Registry()
    codec = Codec("confluent", lookup=registry)
    assert codec.learn_ours(300, SCHEMAS[RequestCancelled].fingerprint)

    data = codec.encode(EVENT)

    assert data[:5] == b"\0\0\0\x01\x2c"
    assert codec.decode(data) == EVENT
    assert registry.asked == []


def test_how_an_event_becomes_known_is_written_so_that_anyone_can_read_it() -> None:
    event = SchemaRegistered(subject="s", at_us=1, schema_id=5, version=1, fingerprint="00", avro="{}")
    codec = Codec("confluent")
    codec.learn_ours(5, SCHEMAS[SchemaRegistered].fingerprint)

    assert Codec().decode(codec.encode(event)) == event
    assert "headrace.v1.SchemaRegistered" not in codec.missing_ids()


@pytest.mark.parametrize("fingerprint", ["", "zz", "00" * 8, avro_fingerprint(OTHER)])
def test_a_fingerprint_of_nothing_of_ours_teaches_nothing(fingerprint: str) -> None:
    codec = Codec("confluent")

    assert not codec.learn_ours(5, fingerprint)
    assert len(codec.missing_ids()) == len(SCHEMAS) - 2


@pytest.mark.parametrize("schema_id", [-1, 1 << 31])
def test_a_number_that_no_registry_gives_is_no_schema_id(schema_id: int) -> None:
    with pytest.raises(UnusableSchema, match=str(schema_id)):
        Codec().learn_ours(schema_id, SCHEMAS[RequestCancelled].fingerprint)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '"string"', "[" * 100_000, b"\xff"])
def test_text_that_is_no_schema_is_unusable(text: str | bytes) -> None:
    with pytest.raises(UnusableSchema):
        parsed_schema(text)


def test_bytes_whose_id_no_registry_gives_are_no_event_and_nobody_is_asked() -> None:
    registry = Registry()
    with pytest.raises(UndecodableEvent):
        Codec(lookup=registry).decode(b"\0\x80\0\0\0body")

    assert registry.asked == []


@pytest.mark.parametrize(
    ("data", "schema_id"),
    [
        (b"\0\0\0\x01\x2cbody", 300),
        (b"\0\x7f\xff\xff\xff", (1 << 31) - 1),
        (b"\0\xff\xff\xff\xff", None),
        (b"\0\0\0\x01", None),
        (b"\xc3\x01" + bytes(8), None),
        (b"", None),
    ],
)
def test_the_schema_id_can_be_told_from_the_bytes(data: bytes, schema_id: int | None) -> None:
    assert schema_id_in(data) == schema_id
