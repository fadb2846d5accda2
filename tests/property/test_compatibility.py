"""What the checker lets pass can be read; what breaks it names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import pytest
from fastavro.schema import parse_schema
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.avro_types import InvalidSchema
from schemas.catalog import published_schema
from schemas.compatibility import Rule, full_incompatibilities, incompatibilities
from schemas.events import EVENT_TYPES
from tests.avro_schemas import changed, records_in, schemas, values_of, without_logical_types

PUBLISHED: list[Any] = [published_schema(event_type) for event_type in EVENT_TYPES]
OURS = st.sampled_from([without_logical_types(schema) for schema in PUBLISHED])
ADDITIONS = st.sampled_from(
    [
        ("boolean", False), ("int", -1), ("long", 0), ("double", 1.5), ("string", "none"), ("bytes", "ÿ"),
        (["null", "string"], None), ({"type": "array", "items": "int"}, []), ({"type": "map", "values": "long"}, {}),
        ({"type": "enum", "name": "Added", "symbols": ["OFF", "ON"], "default": "OFF"}, "ON"),
    ]
)  # fmt: skip


def read(value: Any, writer: Any, reader: Any = None) -> Any:
    """What a reader with the second schema makes of a value written with the first."""
    parsed = parse_schema(copy.deepcopy(writer), named_schemas={})
    body = BytesIO()
    fastavro.schemaless_writer(body, parsed, value)
    body.seek(0)
    return fastavro.schemaless_reader(
        body, parsed, None if reader is None else parse_schema(copy.deepcopy(reader), named_schemas={})
    )


def grown(data: st.DataObject, schema: Any) -> Any:
    """The schema with new fields that have defaults."""
    result = copy.deepcopy(schema)
    record = data.draw(st.sampled_from(records_in(result)))
    fields = record["fields"]
    for index in range(data.draw(st.integers(0, 2))):
        type_, default = data.draw(ADDITIONS)
        if isinstance(type_, dict) and "name" in type_:
            type_ = {**type_, "name": f"Added{index}"}
        place = data.draw(st.integers(0, len(fields)))
        fields.insert(place, {"name": f"added_{index}", "type": type_, "default": default})
    return result


def shrunk(data: st.DataObject, schema: Any) -> Any:
    """The schema without some of the fields that have defaults."""
    result = copy.deepcopy(schema)
    for record in records_in(result):
        record["fields"] = [one for one in record["fields"] if "default" not in one or data.draw(st.booleans())]
    return result


@given(OURS, st.data())
def test_fields_with_defaults_may_come_and_go_and_both_sides_read_on(old: Any, data: st.DataObject) -> None:
    new = grown(data, shrunk(data, old))
    assert full_incompatibilities(new, old) == ()
    for writer, reader in ((old, new), (new, old)):
        value = data.draw(values_of(writer))
        as_written, as_read = read(value, writer), read(value, writer, reader)
        for field in reader["fields"]:
            if any(field["name"] == other["name"] for other in writer["fields"]):
                assert in_common(as_read[field["name"]], as_written[field["name"]])
            else:
                assert as_read[field["name"]] == field["default"]


def in_common(one: Any, other: Any) -> bool:
    """Equal, but for fields that only one of two records has."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(in_common(one[key], other[key]) for key in one.keys() & other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(in_common, one, other))
    return bool(one == other)


@dataclass(frozen=True)
class BadChange:
    """applies: the fields that it can be made on. make: makes it, on a record and one of these fields of it."""

    rule: Rule
    applies: Callable[[dict[str, Any]], bool]
    make: Callable[[dict[str, Any], dict[str, Any]], object]


def no_union(field: dict[str, Any]) -> bool:
    return not isinstance(field["type"], list)


def retyped(type_: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda _, field: (field.update(type=type_), field.pop("default", None))


BAD_CHANGES = {
    "a required field is added": BadChange(
        Rule.FIELD_WITHOUT_DEFAULT, lambda _: True,
        lambda record, _: record["fields"].append({"name": "added", "type": "string"}),
    ),
    "a required field is dropped": BadChange(
        Rule.FIELD_WITHOUT_DEFAULT, lambda field: "default" not in field,
        lambda record, field: record["fields"].remove(field),
    ),
    "a field is renamed": BadChange(
        Rule.FIELD_RENAMED, lambda _: True, lambda _, field: field.update(aliases=[field["name"]], name="renamed")
    ),
    "a record is renamed": BadChange(
        Rule.NAME_CHANGED, lambda _: True, lambda record, _: record.update(name="Renamed")
    ),
    "an int becomes a long": BadChange(
        Rule.TYPE_CHANGED, lambda field: field["type"] == "int", lambda _, field: field.update(type="long")
    ),
    "a type is exchanged": BadChange(
        Rule.TYPE_CHANGED, no_union, retyped({"type": "fixed", "name": "Other", "size": 3})
    ),
    "null is allowed": BadChange(
        Rule.UNION_BRANCH_MISSING, no_union,
        lambda _, field: (field.update(type=["null", field["type"]]), field.pop("default", None)),
    ),
    "a default changes": BadChange(
        Rule.DEFAULT_CHANGED, lambda field: isinstance(field.get("default"), int | float | str),
        lambda _, field: field.update(default=field["default"] + type(field["default"])(7)),
    ),
    "a time becomes a number": BadChange(
        Rule.LOGICAL_TYPE_CHANGED, lambda field: isinstance(field["type"], dict) and "logicalType" in field["type"],
        lambda _, field: field.update(type="long"),
    ),
}  # fmt: skip


def fields_where(applies: Callable[[dict[str, Any]], bool]) -> list[tuple[Any, int, int]]:
    """(schema, which record of it, which field of that) of every field that it applies to, in all our schemas."""
    return [
        (schema, at, index)
        for schema in PUBLISHED
        for at, record in enumerate(records_in(schema))
        for index, field in enumerate(record["fields"])
        if applies(field)
    ]


@pytest.mark.parametrize("name", BAD_CHANGES)
def test_a_change_that_breaks_is_named_by_its_rule_also_among_good_ones(name: str) -> None:
    change = BAD_CHANGES[name]

    @given(st.sampled_from(fields_where(change.applies)), st.data())
    def is_named(place: tuple[Any, int, int], data: st.DataObject) -> None:
        old, at, index = place
        bad = copy.deepcopy(old)
        record = records_in(bad)[at]
        change.make(record, record["fields"][index])
        new = grown(data, bad)
        assert change.rule in {one.rule for one in full_incompatibilities(new, old)}

    is_named()


@given(schemas())
def test_every_schema_reads_what_it_wrote(schema: Any) -> None:
    assert incompatibilities(schema, schema) == ()


@given(st.data())
def test_what_passes_the_check_is_read_by_avro(data: st.DataObject) -> None:
    writer = data.draw(schemas())
    reader = data.draw(changed(writer))
    try:
        compatible = not incompatibilities(reader, writer)
    except InvalidSchema:
        assume(False)
    assume(compatible)
    read(data.draw(values_of(writer)), writer, reader)
