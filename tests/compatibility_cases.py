"""Pairs of schemas with what is known about them, for our checker and for a registry's (which answers the same way)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.compatibility import Breaks, Rule

OLD, NEW, MEANING = Breaks.OLD_READERS, Breaks.NEW_READERS, Breaks.MEANING


@dataclass(frozen=True, slots=True)
class CompatibilityCase:
    """One change of a schema.

    expected: (who is hurt, path, rule) of every break when `new` takes the place of `old`.
    a_registry_forgives: Avro for Java 1.12, which registries use, lets it pass where other libraries, or Java's own
    reader, do not.
    """

    name: str
    old: Any
    new: Any
    expected: frozenset[tuple[Breaks, str, Rule]] = frozenset()

    a_registry_forgives: bool = False

    @property
    def reads_both_ways(self) -> bool:
        """By Avro's rules alone; ours on meaning go beyond."""
        return all(breaks is MEANING for breaks, _, _ in self.expected)

    @property
    def a_registry_accepts(self) -> bool:
        """What a schema registry says to FULL."""
        return self.reads_both_ways or self.a_registry_forgives


def record(*fields: dict[str, Any], name: str = "Event", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "headrace.v1", "fields": list(fields), **attributes}


def field(name: str, type_: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **attributes}


def _case(
    name: str, old: Any, new: Any, *expected: tuple[Breaks, str, Rule], of_field: bool = True, forgiven: bool = False
) -> CompatibilityCase:
    """Of a field `x` with these types, or else of whole schemas."""
    if of_field:
        old, new = record(field("x", old)), record(field("x", new))
    return CompatibilityCase(name, old, new, frozenset(expected), forgiven)


def _both(path: str, rule: Rule) -> tuple[tuple[Breaks, str, Rule], tuple[Breaks, str, Rule]]:
    return (OLD, path, rule), (NEW, path, rule)


A, B = field("a", "string"), field("b", "int")
TIME = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def enum(*symbols: str, **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "State", "symbols": list(symbols), **attributes}


def fixed(size: int, name: str = "Hash") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def node(*more: dict[str, Any]) -> dict[str, Any]:
    return record(field("value", "int"), field("next", ["null", "Node"], default=None), *more, name="Node")


_FIELDS = [
    _case("nothing changed", record(A, B), record(A, B), of_field=False),
    _case("fields in another order", record(A, B), record(B, A), of_field=False),
    _case("docs changed", record(A, doc="one"), record({**A, "doc": "two"}, doc="two"), of_field=False),
    _case("field with a default added", record(A), record(A, {**B, "default": 1}), of_field=False),
    _case("field with a default dropped", record(A, {**B, "default": 1}), record(A), of_field=False),
    _case("default added to a field", record(B), record({**B, "default": 1}), of_field=False),
    _case(
        "field without a default added", record(A), record(A, B),
        (NEW, "Event.b", Rule.FIELD_WITHOUT_DEFAULT), of_field=False,
    ),
    _case(
        "field without a default dropped", record(A, B), record(A),
        (OLD, "Event.b", Rule.FIELD_WITHOUT_DEFAULT), of_field=False,
    ),
    _case(
        "default changed", record({**B, "default": 1}), record({**B, "default": 2}),
        (MEANING, "Event.b", Rule.DEFAULT_CHANGED), of_field=False,
    ),
    _case(
        "default of a boolean turned over",
        record(field("b", "boolean", default=False)), record(field("b", "boolean", default=True)),
        (MEANING, "Event.b", Rule.DEFAULT_CHANGED), of_field=False,
    ),
    _case(
        "default that only looks the same", record(field("b", ["boolean", "int"], default=True)),
        record(field("b", ["int", "boolean"], default=1)), (MEANING, "Event.b", Rule.DEFAULT_CHANGED), of_field=False,
    ),
    _case(
        "default in a list", record(field("b", array("double"), default=[1])),
        record(field("b", array("double"), default=[1.0])), of_field=False,
    ),
    _case(
        "default in a map changed", record(field("b", map_of("int"), default={"a": 1})),
        record(field("b", map_of("int"), default={"a": 2})), (MEANING, "Event.b", Rule.DEFAULT_CHANGED), of_field=False,
    ),
    _case(
        "default written another way", record(field("b", "double", default=1)),
        record(field("b", "double", default=1.0)), of_field=False,
    ),
    _case(
        "renamed with an alias", record(A), record(field("title", "string", aliases=["a"])),
        (OLD, "Event.a", Rule.FIELD_WITHOUT_DEFAULT), (MEANING, "Event.title", Rule.FIELD_RENAMED), of_field=False,
    ),
    _case(
        "renamed with an alias where there is a default",
        record({**A, "default": ""}), record(field("title", "string", aliases=["a"], default="")),
        (MEANING, "Event.title", Rule.FIELD_RENAMED), of_field=False,
    ),
    _case(
        "default of a union that fits its second branch", record(A),
        record(A, field("x", ["string", "null"], default=None)),
        (NEW, "Event.x", Rule.DEFAULT_UNFIT), of_field=False, forgiven=True,
    ),
    _case(
        "record under another name", record(A), record(A, name="Other"),
        (NEW, "Event", Rule.NAME_CHANGED), (OLD, "Other", Rule.NAME_CHANGED), of_field=False,
    ),
    _case(
        "record that knows its old name", record(A), record(A, name="Other", aliases=["Event"]),
        (OLD, "Other", Rule.NAME_CHANGED), of_field=False,
    ),
]  # fmt: skip

_TYPES = [
    _case("int to long", "int", "long", (OLD, "Event.x", Rule.TYPE_CHANGED)),
    _case("long to int", "long", "int", (NEW, "Event.x", Rule.TYPE_CHANGED)),
    _case("float to double", "float", "double", (OLD, "Event.x", Rule.TYPE_CHANGED)),
    _case("int to string", "int", "string", *_both("Event.x", Rule.TYPE_CHANGED)),
    _case("string to bytes", "string", "bytes", (MEANING, "Event.x", Rule.TEXT_AND_BYTES)),
    _case("array to map", array("int"), map_of("int"), *_both("Event.x", Rule.TYPE_CHANGED)),
    _case("a primitive written out", "string", {"type": "string"}),
    _case("items of an array", array("int"), array("string"), *_both("Event.x[]", Rule.TYPE_CHANGED)),
    _case("values of a map", map_of("int"), map_of(array("int")), *_both("Event.x{}", Rule.TYPE_CHANGED)),
    _case("seconds for micros", TIME, MILLIS, (MEANING, "Event.x", Rule.LOGICAL_TYPE_CHANGED)),
    _case("a time for a number", "long", TIME, (MEANING, "Event.x", Rule.LOGICAL_TYPE_CHANGED)),
    _case("a time in a union", ["null", TIME], ["null", "long"], (MEANING, "Event.x", Rule.LOGICAL_TYPE_CHANGED)),
    _case(
        "scale of a decimal",
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        (MEANING, "Event.x", Rule.LOGICAL_TYPE_CHANGED),
    ),
    _case("fixed of another size", fixed(16), fixed(32), *_both("Event.x", Rule.FIXED_SIZE_CHANGED)),
    _case("fixed under another name", fixed(16), fixed(16, "Digest"), *_both("Event.x", Rule.NAME_CHANGED)),
    _case("enum symbol added", enum("UP"), enum("UP", "DOWN"), (OLD, "Event.x", Rule.ENUM_SYMBOL_UNKNOWN)),
    _case("enum symbol removed", enum("UP", "DOWN"), enum("UP"), (NEW, "Event.x", Rule.ENUM_SYMBOL_UNKNOWN)),
    _case("enum symbols in another order", enum("UP", "DOWN"), enum("DOWN", "UP")),
    _case(
        "enum symbol added where there is a default",
        enum("UP", "UNKNOWN", default="UNKNOWN"), enum("UP", "UNKNOWN", "DOWN", default="UNKNOWN"),
    ),
    _case(
        "default of an enum changed", enum("UP", "DOWN", default="UP"), enum("UP", "DOWN", default="DOWN"),
        (MEANING, "Event.x", Rule.DEFAULT_CHANGED),
    ),
]  # fmt: skip

_UNIONS = [
    _case("null allowed", "string", ["null", "string"], (OLD, "Event.x", Rule.UNION_BRANCH_MISSING)),
    _case("null no longer allowed", ["null", "string"], "string", (NEW, "Event.x", Rule.UNION_BRANCH_MISSING)),
    _case("branches in another order", ["null", "string"], ["string", "null"]),
    _case(
        "branch added", ["null", "string"], ["null", "string", "int"], (OLD, "Event.x", Rule.UNION_BRANCH_MISSING)
    ),
    _case(
        "branch widened", ["null", "int"], ["null", "long"], (OLD, "Event.x", Rule.UNION_BRANCH_MISSING)
    ),
    _case("a union of one", "string", ["string"]),
    _case(
        "record in a union", ["null", record(A, name="Part")], ["null", record(A, B, name="Part")],
        (NEW, "Event.x.b", Rule.FIELD_WITHOUT_DEFAULT),
    ),
]  # fmt: skip

_NAMES = [
    _case(
        "record in an array", array(record(field("role", "string"), name="Message")),
        array(record(field("role", "int"), name="Message")), *_both("Event.x[].role", Rule.TYPE_CHANGED),
    ),
    _case(
        "namespace of a nested type changed", enum("UP"), enum("UP", namespace="elsewhere"),
        *_both("Event.x", Rule.NAME_CHANGED), forgiven=True,
    ),
    _case("namespace written out", enum("UP"), enum("UP", namespace="headrace.v1")),
    _case("namespace in the name", enum("UP"), {**enum("UP"), "name": "headrace.v1.State"}),
    _case(
        "a type used by its name", record(field("x", fixed(4)), field("y", "Hash")),
        record(field("x", fixed(4)), field("y", "headrace.v1.Hash")), of_field=False,
    ),
    _case(
        "a type used by its name and changed", record(field("x", enum("UP")), field("y", array("State"))),
        record(field("x", enum("UP", "DOWN")), field("y", array("State"))),
        (OLD, "Event.x", Rule.ENUM_SYMBOL_UNKNOWN), (OLD, "Event.y[]", Rule.ENUM_SYMBOL_UNKNOWN), of_field=False,
    ),
    _case("a record that holds itself", node(), node(), of_field=False),
    _case(
        "a record that holds itself, changed", node(), node(B),
        (NEW, "Node.b", Rule.FIELD_WITHOUT_DEFAULT), of_field=False,
    ),
]  # fmt: skip

COMPATIBILITY_CASES = (*_FIELDS, *_TYPES, *_UNIONS, *_NAMES)
