"""Single-object encoding, held against vectors that Avro's own Java library gave."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas.codec import (
    SCHEMAS,
    Codec,
    avro_fingerprint,
    decode,
    encode,
    published_schema,
    single_object_header,
)
from schemas.errors import UndecodableEvent, UnencodableEvent, UnknownEventType, UnknownSchema, UnusableSchema
from schemas.events import Message, RequestCancelled, RequestSubmitted, Route, RouteTableChanged, RouteTarget

CANCELLED = RequestCancelled(request_id="r", tenant="acme", at_us=1_700_000_000_000_000, reason="client")


def test_the_header_is_the_one_that_avro_for_java_writes() -> None:
    schema = {
        "type": "record",
        "name": "RequestSubmitted",
        "namespace": "headrace.v1",
        "fields": [
            {"name": "request_id", "type": "string"},
            {"name": "at", "type": "long"},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
        ],
    }
    assert single_object_header(schema).hex() == "c301cf1ddb0fa0290efa"


def test_docs_and_logical_types_do_not_change_the_fingerprint() -> None:
    bare = {
        "type": "record",
        "name": "headrace.v1.RequestCancelled",
        "fields": [
            {"name": "request_id", "type": "string"},
            {"name": "tenant", "type": "string"},
            {"name": "at_us", "type": "long"},
            {"name": "reason", "type": "string"},
        ],
    }
    assert single_object_header(bare) == SCHEMAS[RequestCancelled].header


def test_a_reader_with_nothing_but_the_published_schema_reads_the_body() -> None:
    body = BytesIO(encode(CANCELLED)[10:])
    record = fastavro.schemaless_reader(body, dict(published_schema(RequestCancelled)), None)
    assert isinstance(record, dict)
    assert record["at_us"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert record["reason"] == "client"


def test_nested_records_come_back_as_their_types() -> None:
    event = RouteTableChanged(
        at_us=1, revision=2, routes=(Route(alias="chat", targets=(RouteTarget(model_version="c@v1", percent=100.0),)),)
    )
    assert decode(encode(event)) == event


def test_defaults_fill_what_a_producer_left_out() -> None:
    event = RequestSubmitted(
        request_id="r", tenant="acme", at_us=1, received_at_us=1, source="test", model="chat",
        messages=(Message(role="user", content="Hi"),),
    )  # fmt: skip
    decoded = decode(encode(event))
    assert decoded == event
    assert isinstance(decoded, RequestSubmitted)
    assert decoded.metadata == {}
    assert decoded.stop == ()


@pytest.mark.parametrize("data", [b"", b"\xc3", b"{}", b"\xc3\x02" + bytes(20), b"\x00\x00"])
def test_bytes_without_a_header_are_undecodable(data: bytes) -> None:
    with pytest.raises(UndecodableEvent, match="neither an Avro single-object header nor a Confluent one"):
        decode(data)


def test_an_unknown_fingerprint_is_named() -> None:
    with pytest.raises(UnknownSchema, match="0102030405060708") as caught:
        decode(b"\xc3\x01" + bytes(range(1, 9)) + b"body")
    assert caught.value.fingerprint == "0102030405060708"


def test_left_over_bytes_are_undecodable() -> None:
    with pytest.raises(UndecodableEvent, match="1 bytes left over after a RequestCancelled"):
        decode(encode(CANCELLED) + b"\0")


def test_a_field_that_does_not_fit_is_unencodable() -> None:
    wrong = RequestCancelled(request_id="r", tenant="acme", at_us="now", reason="x")  # type: ignore[arg-type]
    with pytest.raises(UnencodableEvent, match="RequestCancelled does not fit its schema"):
        encode(wrong)


def test_text_with_a_lone_surrogate_is_unencodable() -> None:
    with pytest.raises(UnencodableEvent):
        encode(RequestCancelled(request_id="r", tenant="acme", at_us=1, reason="\ud800"))


def test_a_published_schema_is_read_by_its_fingerprint_from_then_on() -> None:
    avro = dict(published_schema(RequestCancelled))
    newer = {**avro, "fields": [*avro["fields"], {"name": "mood", "type": "string", "default": "calm"}]}
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(newer), {**vars(CANCELLED), "mood": "new"})
    data = single_object_header(newer) + body.getvalue()
    codec = Codec()
    with pytest.raises(UnknownSchema):
        codec.decode(data)
    codec.learn_published(avro_fingerprint(newer), newer)
    assert codec.decode(data) == CANCELLED
    assert codec.encode(CANCELLED) == encode(CANCELLED), "what is written stays as it was"
    with pytest.raises(UnknownSchema):
        decode(data)


def test_a_published_schema_of_an_event_that_is_not_known_here_says_which_it_is() -> None:
    codec, paused = Codec(), {"type": "record", "name": "headrace.v1.RequestPaused", "fields": []}
    fingerprint = avro_fingerprint(paused)
    with pytest.raises(UnknownEventType, match=r"headrace\.v1\.RequestPaused"):
        codec.learn_published(fingerprint, paused)
    with pytest.raises(UnknownEventType, match=r"headrace\.v1\.RequestPaused") as caught:
        codec.decode(single_object_header(paused))
    assert caught.value.fingerprint == fingerprint


@pytest.mark.parametrize("name", ["RequestPaused", "RequestCancelled"])
@pytest.mark.parametrize("fields", [5, [{"name": "x"}], [{"name": "x", "type": {"type": "array"}}], [7]])
def test_a_published_schema_that_is_none_is_unusable_whatever_it_names(name: str, fields: Any) -> None:
    with pytest.raises(UnusableSchema):
        Codec().learn_published("0" * 16, {"type": "record", "name": f"headrace.v1.{name}", "fields": fields})


def test_a_schema_of_ours_that_is_published_changes_nothing() -> None:
    codec = Codec()
    avro = published_schema(RequestCancelled)
    codec.learn_published(avro_fingerprint(avro), avro)
    assert codec.decode(encode(CANCELLED)) == CANCELLED
