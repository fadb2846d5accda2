"""What fastavro reads becomes an event's fields; an int with more than 32 bits does not."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas.catalog import published_schema
from schemas.codec import SCHEMAS, decode
from schemas.errors import UndecodableEvent
from schemas.events import DeadLettered, Event, RequestValidated, ThroughputMeasured, TokensGenerated
from schemas.plain_schema import without_logical_types

SMALLEST, LARGEST = -(1 << 31), (1 << 31) - 1
TOKENS = {
    "request_id": "r", "tenant": "acme", "attempt": 1, "at_us": 1, "index": 0, "token_ids": [1, 2],
    "text_offset_chars": 0, "text": "x",
}  # fmt: skip
LETTER = {
    "at_us": 1, "consumer": "c", "reason": "r", "message": "m", "origin_topic": "t", "origin_partition": 0,
    "origin_offset": 0, "value": b"", "headers": {},
}  # fmt: skip


def read(event_type: type[Event], values: dict[str, Any]) -> Event:
    """What comes of these values, written by somebody who takes every int for a long: the bytes are the same."""
    wide = json.loads(json.dumps(without_logical_types(published_schema(event_type))).replace('"int"', '"long"'))
    out = BytesIO()
    fastavro.schemaless_writer(out, wide, values)
    return decode(SCHEMAS[event_type].header + out.getvalue())


@pytest.mark.parametrize("value", [SMALLEST, -1, 0, LARGEST])
def test_an_int_of_32_bits_is_read(value: int) -> None:
    fields = dict.fromkeys(("attempt", "index", "text_offset_chars"), value)
    assert vars(read(TokensGenerated, {**TOKENS, **fields})).items() >= fields.items()
    assert vars(read(DeadLettered, {**LETTER, "schema_id": value}))["schema_id"] == value
    assert vars(read(DeadLettered, {**LETTER, "schema_id": None}))["schema_id"] is None


@pytest.mark.parametrize("value", [SMALLEST - 1, LARGEST + 1, 1 << 40])
@pytest.mark.parametrize(
    ("event_type", "values", "field"),
    [
        (TokensGenerated, TOKENS, "attempt"),
        (TokensGenerated, TOKENS, "text_offset_chars"),
        (DeadLettered, LETTER, "origin_partition"),
        (DeadLettered, LETTER, "schema_id"),
    ],
)
def test_a_larger_one_is_not(event_type: type[Event], values: dict[str, Any], field: str, value: int) -> None:
    with pytest.raises(UndecodableEvent, match=f"{field} holds what is no int of 32 bits"):
        read(event_type, {**values, field: value})


@pytest.mark.parametrize("count", [1, 2, 32, 33, 1000])
def test_nor_is_one_in_an_array_however_long(count: int) -> None:
    fitting = [LARGEST] * count
    assert vars(read(TokensGenerated, {**TOKENS, "token_ids": fitting}))["token_ids"] == tuple(fitting)
    with pytest.raises(UndecodableEvent, match="token_ids holds what is no int of 32 bits"):
        read(TokensGenerated, {**TOKENS, "token_ids": [*fitting[1:], LARGEST + 1]})


def test_nor_is_one_in_a_record_of_an_array() -> None:
    values = dict.fromkeys(("worker", "deployment", "model_version", "engine", "device", "dtype"), "x") | {"at_us": 1}
    point = {"batch_size": 1, "context_tokens": LARGEST + 1, "output_tokens_per_second": 1.0}
    with pytest.raises(UndecodableEvent, match="context_tokens holds what is no int of 32 bits"):
        read(ThroughputMeasured, {**values, "points": [point]})


def test_lists_come_as_tuples() -> None:
    tokens = vars(read(TokensGenerated, TOKENS))
    assert tokens["token_ids"] == (1, 2)
    validated = {field["name"]: field.get("default", 0) for field in SCHEMAS[RequestValidated].parsed["fields"]}
    validated |= dict.fromkeys(("request_id", "tenant", "model", "tokenized_for", "endpoint"), "x")
    event = vars(read(RequestValidated, {**validated, "prompt_token_ids": [], "stop": ["a", "b"]}))
    assert (event["prompt_token_ids"], event["stop"]) == ((), ("a", "b"))
