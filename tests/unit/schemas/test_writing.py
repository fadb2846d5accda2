"""Bodies byte by byte as fastavro writes them, except for what no other Avro library would read."""

from __future__ import annotations

from dataclasses import asdict, replace
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.codec import SCHEMAS, decode, encode
from schemas.errors import UnencodableEvent
from schemas.events import (
    EVENT_TYPES,
    DeadLettered,
    Event,
    Message,
    RequestSubmitted,
    TenantRegistered,
    ThroughputMeasured,
    ThroughputPoint,
    TokensGenerated,
)
from schemas.writing import record_writer
from tests.hostile_avro import varint
from tests.hostile_schemas import record
from tests.property.test_codec import events

TOKENS = TokensGenerated(
    request_id="r", tenant="acme", attempt=1, at_us=1, index=0, token_ids=(1, 2), text_offset_chars=0, text="x"
)
SUBMITTED = RequestSubmitted(
    request_id="r", tenant="acme", at_us=1, received_at_us=1, source="s", model="m",
    messages=(Message(role="user", content="Hi"),),
)  # fmt: skip
LETTER = DeadLettered(
    at_us=1, consumer="c", reason="r", message="m", origin_topic="t", origin_partition=0, origin_offset=0, value=b""
)
POINT = ThroughputPoint(batch_size=1, context_tokens=2, output_tokens_per_second=1.0)
MEASURED = ThroughputMeasured(
    worker="w", at_us=1, deployment="d", model_version="m", engine="e", device="cpu", dtype="f", points=(POINT,)
)
TENANT = TenantRegistered(
    tenant="t", at_us=1, requests_per_minute=1, tokens_per_minute=1, max_concurrent_requests=1, weight=1.0
)


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_fastavro_writes_the_same_bytes(event_type: type[Event]) -> None:
    schema = SCHEMAS[event_type]

    @settings(max_examples=30)
    @given(events(event_type))
    def same(event: Event) -> None:
        out = BytesIO()
        fastavro.schemaless_writer(out, schema.parsed, asdict(event))
        assert encode(event) == schema.header + out.getvalue()

    same()


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(8191)
@example(8192)
@example((1 << 63) - 1)
@example(-(1 << 63))
def test_numbers_are_zigzag_varints(value: int) -> None:
    assert record_writer(record("long"))({"a": value}) == varint(value)


@pytest.mark.parametrize("size", [0, 8191, 8192, 100_000])
def test_long_texts_and_long_arrays_come_back(size: int) -> None:
    event = replace(TOKENS, text="ü" * size, token_ids=(7,) * size)
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("event", "field", "value", "why"),
    [
        (TOKENS, "attempt", 1 << 31, "attempt: 2147483648 has more than the 32 bits of an int"),
        (TOKENS, "index", -(1 << 31) - 1, "index: -2147483649 has more than the 32 bits"),
        (TOKENS, "token_ids", (1, 1 << 40), "token_ids: 1099511627776 has more than the 32 bits"),
        (TOKENS, "at_us", 1 << 63, "at_us: 9223372036854775808 has more than the 64 bits of a long"),
        (LETTER, "schema_id", 1 << 31, "schema_id: 2147483648 has more than"),
        (MEASURED, "points", (replace(POINT, batch_size=1 << 31),), "points: batch_size: 2147483648 has more than"),
        (TOKENS, "attempt", "1", "attempt: "),
        (TOKENS, "attempt", 1.0, "attempt: "),
        (TOKENS, "attempt", 1e9, "attempt: "),
        (TOKENS, "attempt", None, "attempt: "),
        (TOKENS, "text", b"x", "text: "),
        (TOKENS, "text", None, "text: "),
        (TOKENS, "text", "\ud800", "text: 'utf-8' codec can't encode"),
        (TOKENS, "token_ids", None, "token_ids: a NoneType in place of a tuple"),
        (TOKENS, "token_ids", {1}, "token_ids: a set in place of a tuple"),
        (SUBMITTED, "stop", "abc", "stop: a str in place of a tuple"),
        (SUBMITTED, "stop", "", "stop: a str in place of a tuple"),
        (SUBMITTED, "metadata", [("a", "b")], "metadata: a list in place of a mapping"),
        (SUBMITTED, "metadata", {"a": 1}, "metadata: "),
        (SUBMITTED, "metadata", {1: "a"}, "metadata: "),
        (SUBMITTED, "messages", ({"role": "user"},), "messages: "),
        (SUBMITTED, "messages", (TOKENS,), "messages: there is no role"),
        (LETTER, "value", "text", "value: "),
        (TENANT, "weight", "1", "weight: "),
        (TENANT, "weight", 1 << 2000, "weight: "),
    ],
)
def test_what_does_not_fit_is_named(event: Any, field: str, value: Any, why: str) -> None:
    with pytest.raises(UnencodableEvent) as caught:
        encode(replace(event, **{field: value}))
    assert str(caught.value).startswith(f"{type(event).__name__} does not fit its schema: {why}")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "avro_type",
    [
        ["int", "null"], ["null", "int", "string"], "float", "boolean", "Named",
        {"type": "enum", "name": "E", "symbols": []}, {"type": "fixed", "name": "F", "size": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_no_event_of_ours_has_is_refused_beforehand(avro_type: Any) -> None:
    with pytest.raises(ValueError, match=r"a union that is not null and one more|no event of ours has a"):
        record_writer(record(avro_type))
