from __future__ import annotations

from typing import Any

import pytest

from schemas.avro_types import InvalidSchema
from schemas.compatibility import Breaks, Incompatibility, Rule, full_incompatibilities, incompatibilities
from tests.compatibility_cases import COMPATIBILITY_CASES, CompatibilityCase, array, enum, field, fixed, record


@pytest.mark.parametrize("case", COMPATIBILITY_CASES, ids=lambda case: case.name)
def test_a_change_breaks_exactly_what_is_known_to_break(case: CompatibilityCase) -> None:
    found = full_incompatibilities(case.new, case.old)
    assert {(one.breaks, one.path, one.rule) for one in found} == case.expected


@pytest.mark.parametrize("case", COMPATIBILITY_CASES, ids=lambda case: case.name)
def test_both_directions_of_a_change_are_the_two_halves_of_the_full_check(case: CompatibilityCase) -> None:
    forward, backward = incompatibilities(case.old, case.new), incompatibilities(case.new, case.old)
    assert (not forward and not backward) == case.reads_both_ways
    assert {one.rule for one in forward} == {rule for breaks, _, rule in case.expected if breaks is Breaks.OLD_READERS}


@pytest.mark.parametrize("writer", ["int", "long", "float"])
@pytest.mark.parametrize("reader", ["long", "float", "double"])
def test_numbers_are_read_as_wider_ones_only(reader: str, writer: str) -> None:
    order = ["int", "long", "float", "double"]
    assert (incompatibilities(reader, writer) == ()) == (order.index(reader) >= order.index(writer))


def test_a_break_says_where_which_rule_and_why() -> None:
    old = record(field("messages", array(record(field("role", "string"), name="Message"))))
    new = record(field("messages", array(record(field("role", "string"), field("at_us", "long"), name="Message"))))
    assert incompatibilities(new, old) == (
        Incompatibility(
            "Event.messages[].at_us",
            Rule.FIELD_WITHOUT_DEFAULT,
            "the writer does not send it and the reader has no default",
        ),
    )
    (found,) = full_incompatibilities(new, old)
    assert str(found) == (
        "Event.messages[].at_us: field_without_default: new readers can't read old events: "
        "the writer does not send it and the reader has no default"
    )


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(field("a", "int", aliases=["b"])), record(field("a", "int"), field("b", "int"))),
        (record(field("a", "int"), field("b", "int", aliases=["a"])), record(field("a", "int"))),
        (record(field("b", "int", aliases=["a"]), field("c", "int", aliases=["a"])), record(field("a", "int"))),
    ],
    ids=["two fields for one", "its name and an alias", "two aliases"],
)
def test_an_alias_that_fits_twice_is_refused(reader: Any, writer: Any) -> None:
    assert [one.rule for one in incompatibilities(reader, writer)] == [Rule.FIELD_AMBIGUOUS]


def test_an_alias_without_a_dot_is_in_the_namespace_of_its_type() -> None:
    new = record(field("x", {**fixed(4, "Digest"), "aliases": ["Hash"]}))
    elsewhere = record(field("x", {**fixed(4, "Digest"), "aliases": ["other.Hash"]}))
    old = record(field("x", fixed(4)))
    assert incompatibilities(new, old) == ()
    assert [one.rule for one in incompatibilities(elsewhere, old)] == [Rule.NAME_CHANGED]


def test_the_exact_branch_of_a_union_goes_before_one_that_could_take_the_value() -> None:
    one = record(field("needed", "int"), name="One", aliases=["Two"])
    two = record(field("a", "string"), name="Two")
    assert incompatibilities([one, two], two) == ()
    assert [found.path for found in incompatibilities([one], two)] == ["Two.needed"]
    assert full_incompatibilities(["bytes", "string"], ["string", "bytes"]) == (), "text is still read as text"


def test_records_that_hold_each_other_are_compared_once() -> None:
    def pair(*more: dict[str, Any]) -> dict[str, Any]:
        inner = record(field("up", ["null", "Outer"]), *more, name="Inner")
        return record(field("down", array(inner)), field("again", "Inner"), name="Outer")

    assert incompatibilities(pair(), pair()) == ()
    assert [one.path for one in incompatibilities(pair(field("x", "int")), pair())] == ["Outer.down[].x"]


def test_schemas_that_are_no_records_are_named_by_what_they_are() -> None:
    assert [one.path for one in incompatibilities(array("string"), array("int"))] == ["array[]"]
    assert [one.path for one in incompatibilities("string", "int")] == ["int"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(field("x", "Unknown")), "no type 'headrace.v1.Unknown' is defined before it is named"),
        (record(field("x", "State"), field("y", enum("UP"))), "no type 'headrace.v1.State' is defined before"),
        (record(field("x", enum("UP")), field("y", enum("UP"))), "'headrace.v1.State' is defined twice"),
        (record(field("x", "int"), field("x", "int")), "a field of 'headrace.v1.Event' is there twice"),
        ({"type": "record", "name": "Event"}, "no Avro schema: KeyError: 'fields'"),
        ({"type": "enum", "name": "State", "symbols": ["UP"], "default": "DOWN"}, "none of its symbols"),
        (["null", ["string"]], "a union stands in a union"),
        (["int", {"type": "int", "logicalType": "date"}], "two branches of one kind"),
        (7, "no Avro schema: TypeError"),
    ],
)
def test_what_is_no_schema_is_a_typed_error(schema: Any, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        incompatibilities(schema, "int")


@pytest.mark.parametrize(
    ("type_", "fits", "does_not"),
    [
        ("null", None, 0),
        ("boolean", True, 1),
        ("int", -(1 << 31), 1 << 31),
        ("long", (1 << 63) - 1, 1 << 63),
        ("double", 1, True),
        ("string", "é", None),
        ("bytes", "ÿ", "Ā"),
        (fixed(2), "ab", "abc"),
        (enum("UP"), "UP", "DOWN"),
        (array("int"), [1], ["1"]),
        (map_of_int := {"type": "map", "values": "int"}, {"a": 1}, {"a": None}),
        (["null", map_of_int], None, {}),
        (record(field("a", "int"), field("b", "int", default=0), name="Part"), {"a": 1}, {"b": 1}),
    ],
    ids=str,
)
def test_a_default_fits_its_type_or_is_named(type_: Any, fits: Any, does_not: Any) -> None:
    old = record()
    assert full_incompatibilities(record(field("x", type_, default=fits)), old) == ()
    found = full_incompatibilities(record(field("x", type_, default=does_not)), old)
    assert [(one.path, one.rule) for one in found] == [("Event.x", Rule.DEFAULT_UNFIT)]
