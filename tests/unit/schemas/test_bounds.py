"""What a body may make a reader do."""

from __future__ import annotations

from typing import Any

import pytest
from fastavro.schema import parse_schema
from hypothesis import given
from hypothesis import strategies as st

from schemas.bounds import MAX_BUILT_BYTES, MAX_EVENT_BYTES, MAX_ITEMS, Bounds, check_bounds
from schemas.codec import SCHEMAS, decode, encode
from schemas.errors import UndecodableEvent, UnencodableEvent, UnusableSchema
from schemas.events import Message, RequestCancelled, RequestSubmitted, RequestValidated, TokensGenerated
from tests.hostile_avro import INT64_MIN, varint
from tests.hostile_schemas import chain, nested, record

SUBMITTED = RequestSubmitted(
    request_id="r", tenant="acme", at_us=1, received_at_us=1, source="test", model="chat", messages=()
)


def bounds_of(*fields: Any) -> Bounds:
    parsed: Any = parse_schema(record(*fields), named_schemas={})
    found = Bounds.of(parsed, always=True)
    assert found is not None
    return found


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def check(body: bytes, *fields: Any) -> None:
    check_bounds(b"head" + body, 4, bounds_of(*fields))


def test_only_schemas_in_which_something_grows_are_walked_over() -> None:
    assert Bounds.of(SCHEMAS[RequestCancelled].parsed, always=False) is None
    assert Bounds.of(SCHEMAS[RequestCancelled].parsed, always=True) is not None
    assert Bounds.of(SCHEMAS[TokensGenerated].parsed, always=False) is not None
    assert Bounds.of(SCHEMAS[RequestSubmitted].parsed, always=False) is not None


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (varint(7) + b"\1" + bytes(4) + bytes(8), ("long", "boolean", "float", "double")),
        (varint(3) + b"abc" + varint(0), ("string", "bytes")),
        (b"\2" + varint(2), (["null", "int"],)),
        (b"\0", (["null", "int"],)),
        (varint(2) + b"\2\2" + varint(1) + b"\2" + b"\0", (array("int"),)),
        (varint(-2) + varint(2) + b"\2\2" + b"\0", (array("int"),)),
        (varint(-1) + varint(3) + varint(1) + b"k" + b"\2" + b"\0", ({"type": "map", "values": "int"},)),
        (b"\4", ({"type": "enum", "name": "E", "symbols": ["A"]},)),
        (bytes(16), ({"type": "fixed", "name": "F", "size": 16},)),
        (b"", ()),
        (b"\2" + bytes(8) + b"\0", (array("double"),)),
    ],
)  # fmt: skip
def test_an_honest_body_passes(body: bytes, fields: tuple[Any, ...]) -> None:
    check(body, *fields)


@pytest.mark.parametrize("cut", range(12))
def test_a_body_that_is_cut_short_does_not(cut: int) -> None:
    whole = varint(3) + b"abc" + varint(2) + b"\2\2" + b"\0" + bytes(4)
    check(whole, "string", array("int"), "float")
    with pytest.raises(UndecodableEvent):
        check(whole[:cut], "string", array("int"), "float")


@pytest.mark.parametrize("length", [4, 1 << 31, 1 << 60, (1 << 63) - 1, -1, -(1 << 31), INT64_MIN])
def test_a_length_that_is_not_there_is_refused(length: int) -> None:
    with pytest.raises(UndecodableEvent, match="a length of"):
        check(varint(length) + b"abc", "string")


@pytest.mark.parametrize("count", [MAX_ITEMS + 1, 1 << 60, -(MAX_ITEMS + 1), INT64_MIN])
@pytest.mark.parametrize("items", ["string", record(name="E"), array("null"), ["null", "int"]], ids=str)
def test_more_items_than_an_event_may_have_are_refused_before_they_are_counted_out(count: int, items: Any) -> None:
    block = varint(count) + (varint(0) if count < 0 else b"") + b"\0"
    with pytest.raises(UndecodableEvent, match="more than 65536 items"):
        check(block, array(items))


@pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "F", "size": 0}], ids=["null", "fixed"])
def test_items_of_no_bytes_are_counted(items: Any) -> None:
    check(varint(1000) + b"\0", array(items))
    with pytest.raises(UndecodableEvent, match=f"more than {MAX_BUILT_BYTES} bytes"):
        check(varint(1 << 60) + b"\0", array(items))


def test_items_of_all_arrays_count_together() -> None:
    half = varint(MAX_ITEMS // 2) + b"\0" * (MAX_ITEMS // 2) + b"\0"
    check(half + half, array("string"), array("string"))
    with pytest.raises(UndecodableEvent, match="items"):
        check(half + half + b"\2\0\0", array("string"), array("string"), array("string"))


def test_values_of_no_bytes_in_records_count_too() -> None:
    wide = {**record(*["null"] * 20), "name": "Wide"}
    check(varint(10_000) + b"\0", array(wide))
    with pytest.raises(UndecodableEvent, match="its values would take"):
        check(varint(20_000) + b"\0", array(wide))


def test_a_schema_that_doubles_its_values_is_given_up_early() -> None:
    bounds = Bounds.of(parse_schema(chain(28, times=2), named_schemas={}), always=True)
    assert bounds is not None
    with pytest.raises(UndecodableEvent, match="its values would take"):
        check_bounds(b"", 0, bounds)


@pytest.mark.parametrize("size", [0, 1, 3, 1 << 40, -1, INT64_MIN])
def test_a_block_that_lies_about_its_size_is_refused(size: int) -> None:
    check(varint(-1) + varint(2) + varint(1) + b"a" + b"\0", array("string"))
    with pytest.raises(UndecodableEvent, match="a block of 2 bytes says"):
        check(varint(-1) + varint(size) + varint(1) + b"a" + b"\0", array("string"))


@pytest.mark.parametrize("index", [2, -1, 1 << 40, INT64_MIN])
def test_a_branch_that_a_union_does_not_have_is_refused(index: int) -> None:
    with pytest.raises(UndecodableEvent, match="of a union of 2"):
        check(varint(index) + b"\0", ["null", "int"])


@pytest.mark.parametrize("number", [b"\x80" * 10 + b"\0", b"\xff" * 9 + b"\2", b"\x80" * 5000 + b"\1"])
def test_a_number_of_more_than_64_bits_is_refused(number: bytes) -> None:
    with pytest.raises(UndecodableEvent, match="more than 64 bits"):
        check(number, "long")


@given(st.lists(st.integers(INT64_MIN, (1 << 63) - 1), max_size=60), st.integers(0, 3))
def test_arrays_of_numbers_are_passed_over_to_the_byte(numbers: list[int], more: int) -> None:
    body = varint(len(numbers)) + b"".join(map(varint, numbers)) + b"\0" if numbers else b"\0"
    check(body + bytes(8 * more), array("long"), *["double"] * more)
    with pytest.raises(UndecodableEvent):
        check(body[:-1], array("long"))


def test_one_endless_number_among_many_is_refused() -> None:
    with pytest.raises(UndecodableEvent, match="more than 64 bits"):
        check(varint(100) + b"\2" * 50 + b"\x80" * 11 + b"\2" * 49 + b"\0", array("long"))
    with pytest.raises(UndecodableEvent, match="more than 64 bits"):
        check(varint(100_000) + b"\x80" * 100_000, array("long"))


@pytest.mark.parametrize(
    "schema",
    [chain(40), nested(40), record(["null", "headrace.v1.RequestCancelled"])],
    ids=["chain", "nested", "recursive"],
)
def test_schemas_without_a_bottom_are_refused(schema: Any) -> None:
    with pytest.raises(UnusableSchema, match=r"nested more than|recursive"):
        Bounds.of(parse_schema(schema, named_schemas={}), always=True)


def test_a_prompt_of_half_a_million_tokens_passes() -> None:
    event = RequestValidated(
        request_id="r", tenant="acme", at_us=1, started_at_us=1, received_at_us=1, submitted_at_us=1, model="m",
        tokenized_for="m@v1", prompt_token_ids=tuple(range(100_000, 600_000)), max_output_tokens=1, temperature=1.0,
        top_p=1.0, top_k=0, seed=1, stop=(),
    )  # fmt: skip
    assert decode(encode(event)) == event


def test_an_event_that_no_reader_takes_is_not_written() -> None:
    with pytest.raises(UnencodableEvent, match=f"more than the {MAX_EVENT_BYTES} that readers take"):
        encode(RequestCancelled(request_id="r", tenant="acme", at_us=1, reason="x" * MAX_EVENT_BYTES))
    message = Message(role="", content="")
    most = RequestSubmitted(**{**vars(SUBMITTED), "messages": (message,) * MAX_ITEMS})
    assert decode(encode(most)) == most
    too_many = RequestSubmitted(**{**vars(SUBMITTED), "messages": (message,) * (MAX_ITEMS + 1)})
    with pytest.raises(UnencodableEvent, match="more than 65536 items"):
        encode(too_many)
