"""Bodies of other writers' schemas become whole events of ours, or typed errors."""

from __future__ import annotations

import copy
import math
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas import reading
from schemas.catalog import published_schema
from schemas.codec import Codec, confluent_header
from schemas.errors import ContractError, UndecodableEvent, UnknownEventType, UnusableSchema
from schemas.events import (
    DeadLettered,
    RequestCancelled,
    RequestSubmitted,
    TenantRegistered,
    ThroughputMeasured,
    ThroughputPoint,
    TokensGenerated,
)
from schemas.plain_schema import without_logical_types
from tests.fuzz_avro import wrong_fields
from tests.hostile_avro import varint
from tests.hostile_schemas import parsed_already, record

CANCELLED = {"request_id": "r", "tenant": "acme", "at_us": 7, "reason": "client"}


def schema_of(event_type: type[Any], **types: Any) -> dict[str, Any]:
    """Our schema, with other types for these fields; None leaves the field out."""
    schema: dict[str, Any] = copy.deepcopy(dict(published_schema(event_type)))
    fields = [{**field, "type": types.get(field["name"], field["type"])} for field in schema["fields"]]
    for field in fields:
        field.pop("default", None)
    schema["fields"] = [field for field in fields if field["type"] is not None]
    return schema


def with_extra(schema: dict[str, Any], avro_type: Any, *, first: bool = False) -> dict[str, Any]:
    extra = {"name": "extra", "type": avro_type}
    return {**schema, "fields": [extra, *schema["fields"]] if first else [*schema["fields"], extra]}


def read(schema: dict[str, Any], body: bytes) -> Any:
    codec = Codec()
    codec.learn(1, schema)
    event = codec.decode(confluent_header(1) + body)
    assert not wrong_fields(event)
    return event


def written(schema: dict[str, Any], values: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, values)
    return out.getvalue()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("avro_type", "value"),
    [
        ("null", None),
        ("double", math.nan),
        ("bytes", b"\xff"),
        ({"type": "array", "items": "string"}, ["a", "b"]),
        ({"type": "map", "values": {"type": "array", "items": "long"}}, {"a": [1]}),
        (["null", "int"], 3),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"], "logicalType": "x"}, "B"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 5}, b"1234"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}], "logicalType": "x"}, {"a": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_newer_writer_knows_more_is_left_out(first: bool, avro_type: Any, value: Any) -> None:
    theirs = with_extra(schema_of(RequestCancelled, at_us="long"), avro_type, first=first)
    # What fastavro would make of the logical type is not what is tested
    plain = with_extra(schema_of(RequestCancelled, at_us="long"), without_logical_types(avro_type), first=first)
    event = read(theirs, written(plain, {**CANCELLED, "extra": value}))
    assert event == RequestCancelled(request_id="r", tenant="acme", at_us=7, reason="client")


def test_a_logical_type_beside_a_type_is_a_property_like_any_other() -> None:
    schema = schema_of(RequestCancelled, at_us="long")
    schema["fields"][2] |= {"logicalType": "timestamp-micros", "doc": {"logicalType": 7}}
    assert read(schema, written(schema_of(RequestCancelled, at_us="long"), CANCELLED)).at_us == 7


def test_what_an_older_writer_does_not_know_has_its_default() -> None:
    schema, body = oldest_submitted()
    event = read(schema, body)
    assert (event.stop, event.metadata, event.end_user, event.endpoint) == ((), {}, None, "events")


def test_a_default_is_not_shared_between_events() -> None:
    schema, body = oldest_submitted()
    one, other = read(schema, body), read(schema, body)
    one.metadata["a"] = "changed by a careless reader"
    assert other.metadata == {}
    assert read(schema, body).metadata == {}


def oldest_submitted() -> tuple[dict[str, Any], bytes]:
    """A RequestSubmitted of a writer that knows no field that has a default."""
    ours = published_schema(RequestSubmitted)
    without = {field["name"]: None for field in ours["fields"] if "default" in field}
    schema = schema_of(RequestSubmitted, **without, at_us="long", received_at_us="long")
    values = dict.fromkeys(("request_id", "tenant", "source", "model"), "x")
    return schema, written(schema, {**values, "at_us": 1, "received_at_us": 1, "messages": []})


@pytest.mark.parametrize(
    ("theirs", "value"), [("int", 5), ("long", 5), ("float", 5.0), ("double", 5.0), (["null", "int"], 5)], ids=str
)
def test_numbers_are_promoted_to_ours(theirs: Any, value: float) -> None:
    schema = schema_of(TenantRegistered, weight=theirs, at_us="int")
    values = {"tenant": "t", "at_us": 1, "requests_per_minute": 1, "tokens_per_minute": 1, "max_concurrent_requests": 1}
    event = read(schema, written(schema, {**values, "weight": value}))
    assert event.weight == 5.0
    assert type(event.weight) is float


def test_bytes_are_read_as_text_if_they_are_text() -> None:
    schema = schema_of(RequestCancelled, reason="bytes", at_us="long")
    assert read(schema, written(schema, {**CANCELLED, "reason": "größe".encode()})).reason == "größe"
    with pytest.raises(UndecodableEvent, match="corrupt RequestCancelled"):
        read(schema, written(schema, {**CANCELLED, "reason": b"\xff"}))


def test_text_is_read_as_bytes() -> None:
    schema = schema_of(DeadLettered, value="string", at_us="long")
    values: dict[str, Any] = {field["name"]: None for field in schema["fields"]}
    values |= {"at_us": 1, "consumer": "c", "reason": "r", "message": "m", "origin_topic": "t", "headers": {}}
    values |= {"origin_partition": 0, "origin_offset": 0, "value": "größe"}
    assert read(schema, written(schema, values)).value == "größe".encode()


@pytest.mark.parametrize(
    "theirs",
    [
        "int", "double", "boolean", "null", ["null", "int"], {"type": "array", "items": "string"},
        {"type": "enum", "name": "Reason", "symbols": ["client"]}, {"type": "fixed", "name": "F", "size": 1},
        {"type": "record", "name": "Reason", "fields": []}, {"type": "map", "values": "string"},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_of_another_type_is_a_typed_error(theirs: Any) -> None:
    schema = schema_of(RequestCancelled, reason=theirs, at_us="long")
    for last in (b"\0", b"\2\2", b"\2\2\0", bytes(8)):
        with pytest.raises(UndecodableEvent):
            read(schema, written(schema_of(RequestCancelled, reason=None, at_us="long"), CANCELLED) + last)


def test_the_right_name_with_other_fields_is_no_event() -> None:
    with pytest.raises(UndecodableEvent, match="No default value for field"):
        read(record("string"), varint(1) + b"x")


def test_a_long_in_an_int_is_refused() -> None:
    schema = schema_of(TokensGenerated, at_us="long")
    values = {"request_id": "r", "tenant": "t", "attempt": 1, "at_us": 1, "index": 0, "token_ids": [1]}
    values |= {"text_offset_chars": 0, "text": "x", "logprobs": []}
    assert read(schema, written(schema, values)).token_ids == (1,)
    for name, wrong in (("attempt", 1 << 31), ("index", -(1 << 31) - 1), ("token_ids", [1, 1 << 40])):
        with pytest.raises(UndecodableEvent, match=f"{name} holds what is no int of 32 bits"):
            read(schema, written(schema, {**values, name: wrong}))


def test_an_int_in_a_record_in_an_array_has_32_bits_too() -> None:
    schema = schema_of(ThroughputMeasured, at_us="long")
    values = dict.fromkeys(("worker", "deployment", "model_version", "engine", "device", "dtype"), "x") | {"at_us": 1}
    point = {"batch_size": 1, "context_tokens": 2, "output_tokens_per_second": 3.0}
    assert read(schema, written(schema, {**values, "points": [point]})).points == (ThroughputPoint(**point),)  # type: ignore[arg-type]
    with pytest.raises(UndecodableEvent, match="batch_size holds what is no int"):
        read(schema, written(schema, {**values, "points": [{**point, "batch_size": 1 << 31}]}))


def test_a_field_that_stands_there_twice_is_read_once() -> None:
    schema = schema_of(RequestCancelled, at_us="long")
    schema["fields"].append({"name": "tenant", "type": "string"})
    body = written(schema_of(RequestCancelled, at_us="long"), CANCELLED)
    assert read(schema, body + varint(5) + b"other").tenant == "acme"


def test_a_schema_whose_fingerprint_was_forged_is_not_taken_for_ours() -> None:
    """A name with quotes in it would give our own canonical form, letter by letter."""
    schema = schema_of(RequestCancelled, at_us="long")
    forged = {"name": 'request_id","type":"string"},{"name":"tenant', "type": "string"}
    with pytest.raises(UnusableSchema, match="is no name"):
        Codec().learn(1, {**schema, "fields": [forged, *schema["fields"][2:]]})


def test_names_that_a_library_left_in_a_schema_are_not_trusted() -> None:
    """fastavro takes such a schema as parsed, and would follow X into itself until the process dies."""
    codec = Codec()
    codec.learn(1, parsed_already(X=record("X", name="X")))
    with pytest.raises(UndecodableEvent):
        codec.decode(confluent_header(1) + bytes(100))


def test_an_event_of_another_release_is_named() -> None:
    with pytest.raises(UnknownEventType, match=r"headrace\.v1\.RequestPaused"):
        Codec().learn(1, record("string", name="headrace.v1.RequestPaused"))


@pytest.mark.parametrize("schema", [None, 1, "string", [], {}, {"type": "enum"}, {"type": "record"}], ids=str)
def test_what_is_no_record_is_unusable(schema: Any) -> None:
    with pytest.raises(UnusableSchema):
        Codec().learn(1, schema)


def test_what_is_wrong_is_said_in_few_words() -> None:
    schema = with_extra(
        schema_of(RequestCancelled, at_us="long"), {"type": "enum", "name": "E", "symbols": ["A"] * 5000}
    )
    with pytest.raises(ContractError) as caught:
        read(schema, b"\2" * 40)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("missing", [ImportError("no such module"), TypeError("other arguments")])
def test_without_fastavros_inner_function_the_public_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, missing: Exception
) -> None:
    def fail(*_: object) -> Any:
        raise missing

    monkeypatch.setattr(reading, "import_module", fail)
    monkeypatch.setattr(reading, "_READ_DATA", reading._read_data())
    schema = schema_of(RequestCancelled, at_us="long")
    assert read(schema, written(schema, CANCELLED)).reason == "client"
