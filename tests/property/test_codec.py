"""Whatever goes in comes out; whatever is damaged is a typed error."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.catalog import published_schema
from schemas.codec import HEADER_BYTES, decode, encode
from schemas.errors import ContractError
from schemas.events import EVENT_TYPES, Event
from schemas.ids import (
    MAX_PARTITION,
    RANDOM_BITS,
    created_ms_of,
    new_request_id,
    partition_of,
    request_id_of,
    response_id_of,
)
from schemas.plain_schema import without_logical_types

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def values(hint: Any, avro_type: Any) -> st.SearchStrategy[Any]:
    """Values that the schema of a field admits: Avro's int has 32 bits and its long 64."""
    if hint is str:
        return TEXT
    if hint is int:
        bits = 31 if avro_type == "int" else 63
        return st.integers(-(1 << bits), (1 << bits) - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is bytes:
        return st.binary(max_size=40)
    arguments = typing.get_args(hint)
    if type(None) in arguments:
        return st.none() | values(arguments[0], avro_type[1])
    if typing.get_origin(hint) is tuple:
        return st.lists(values(arguments[0], avro_type["items"]), max_size=4).map(tuple)
    if typing.get_origin(hint) is Mapping:
        return st.dictionaries(TEXT, values(arguments[1], avro_type["values"]), max_size=3)
    return records(hint, avro_type)


def records(cls: type[Any], avro: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Instances of an event or of a record in one, whose schema (without logical types) this is."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field["name"]: values(hints[field["name"]], field["type"]) for field in avro["fields"]})


def events(event_type: type[Event]) -> st.SearchStrategy[Event]:
    return records(event_type, without_logical_types(published_schema(event_type)))


EVENTS: st.SearchStrategy[Event] = st.sampled_from(EVENT_TYPES).flatmap(events)


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_every_event_comes_back_as_it_was(event_type: type[Event]) -> None:
    @given(events(event_type))
    def comes_back(event: Event) -> None:
        assert decode(encode(event)) == event

    comes_back()


@given(EVENTS, st.data())
def test_a_truncated_event_is_a_typed_error(event: Event, data: st.DataObject) -> None:
    whole = encode(event)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ContractError):
        decode(whole[:cut])


@given(EVENTS, st.data())
def test_a_flipped_bit_gives_an_event_or_a_typed_error(event: Event, data: st.DataObject) -> None:
    damaged = bytearray(encode(event))
    at = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[at // 8] ^= 1 << at % 8
    try:
        decode(bytes(damaged))
    except ContractError:
        return
    assert at >= HEADER_BYTES * 8, "a damaged header can't name a schema"


@given(st.binary(max_size=200))
def test_random_bytes_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(ContractError):
        decode(data)


@given(st.integers(0, (1 << 48) - 1), st.integers(0, MAX_PARTITION), st.integers(0, (1 << RANDOM_BITS) - 1))
def test_an_id_gives_back_its_time_and_partition(now_ms: int, partition: int, entropy: int) -> None:
    request_id = new_request_id(now_ms=now_ms, partition=partition, entropy=entropy)
    assert partition_of(request_id) == partition
    assert created_ms_of(request_id) == now_ms
    assert request_id_of(response_id_of(request_id)) == request_id
    for prefix in ("chatcmpl-", "cmpl-"):
        assert request_id_of(response_id_of(request_id, prefix)) == request_id
    assert request_id_of(request_id) == request_id


@given(st.lists(st.integers(0, (1 << 48) - 1), min_size=2, max_size=5, unique=True), st.integers(0, 3))
def test_ids_sort_by_time(times: list[int], partition: int) -> None:
    ids = [new_request_id(now_ms=at, partition=partition, entropy=0) for at in times]
    assert sorted(ids) == [new_request_id(now_ms=at, partition=partition, entropy=0) for at in sorted(times)]
