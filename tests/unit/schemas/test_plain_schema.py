"""What is left of a schema, and what is no schema."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import UnusableSchema
from schemas.plain_schema import MAX_NODES, plain_name, plain_writer_schema, without_logical_types
from tests.hostile_schemas import nested, record

TEXT = {"type": "string", "avro.java.string": "String"}
KIND = {"type": "enum", "name": "Kind", "namespace": "other", "symbols": ["A"], "default": "A"}
SUM = {"type": "fixed", "name": "Sum", "namespace": "", "size": 4, "logicalType": "x"}
SCHEMA = {
    "type": "record", "name": "headrace.v1.Thing", "doc": "A thing.", "owner": "us", "__fastavro_parsed": True,
    "fields": [
        {"name": "at_us", "type": {"type": "long", "logicalType": "timestamp-micros"}, "doc": "When."},
        {"name": "tags", "type": {"type": "map", "values": TEXT}, "default": {}},
        {"name": "kind", "type": KIND},
        {"name": "sum", "type": ["null", SUM]},
        {"name": "odd", "type": "long", "logicalType": "timestamp-micros", "aliases": ["strange"]},
    ],
}  # fmt: skip


def test_a_writers_schema_is_left_with_names_and_types() -> None:
    assert plain_writer_schema(SCHEMA) == {
        "type": "record", "name": "headrace.v1.Thing",
        "fields": [
            {"name": "at_us", "type": "long"},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "namespace": "other", "symbols": ["A"]}},
            {"name": "sum", "type": ["null", {"type": "fixed", "name": "Sum", "namespace": "", "size": 4}]},
            {"name": "odd", "type": "long"},
        ],
    }  # fmt: skip


def test_ours_keeps_defaults_and_aliases() -> None:
    fields = {field["name"]: field for field in without_logical_types(SCHEMA)["fields"]}
    assert fields["tags"]["default"] == {}
    assert fields["odd"]["aliases"] == ["strange"]
    assert fields["kind"]["type"]["default"] == "A"


@pytest.mark.parametrize(
    "name", ["", "7", "a b", 'a"', "a.", ".a", "a..b", "größe", "x" * 1001, None, 7, ["a"], "a\n"], ids=repr
)
def test_what_avro_does_not_allow_as_a_name_is_refused(name: Any) -> None:
    with pytest.raises(UnusableSchema, match="is no name"):
        plain_name(name)


def test_schemas_too_large_or_too_deep_are_refused() -> None:
    plain_writer_schema(record(["null"] * (MAX_NODES - 3)))
    with pytest.raises(UnusableSchema, match="more than 10000"):
        plain_writer_schema(record(["null"] * MAX_NODES))
    with pytest.raises(UnusableSchema, match="more than 10000"):
        plain_writer_schema(record({"type": "enum", "name": "E", "symbols": ["A"] * MAX_NODES}))
    plain_writer_schema(nested(60))
    with pytest.raises(UnusableSchema, match="more than 64 deep"):
        plain_writer_schema(nested(100_000))
