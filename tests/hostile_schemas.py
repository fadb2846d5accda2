"""Writer's schemas that a reader of ours should not have to meet: strange, wrong, or made to do harm."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
OURS = "headrace.v1.RequestCancelled"
_WORDS = ("type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases", "record",
          "array", "map", "enum", "fixed")  # fmt: skip
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def record(*fields: Any, name: str = OURS) -> Schema:
    """A schema with these types as the fields a, b, c, ..."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": chr(ord("a") + index), "type": avro_type} for index, avro_type in enumerate(fields)],
    }


def chain(length: int, times: int = 1) -> Schema:
    """Records that hold the one before, by its name, so many times.

    The schema is flat, but its values are nested as deep as it is long, and there are times ** length of them.
    """
    types = [record(name="R0")] + [record(*[f"R{level - 1}"] * times, name=f"R{level}") for level in range(1, length)]
    return record_of({f"f{index}": avro_type for index, avro_type in enumerate(types)})


def record_of(fields: Mapping[str, Any]) -> Schema:
    return {"type": "record", "name": OURS, "fields": [{"name": name, "type": of} for name, of in fields.items()]}


def nested(depth: int, around: str = "array") -> Schema:
    inner: Any = "int"
    key = "items" if around == "array" else "values"
    for _ in range(depth):
        inner = [inner] if around == "union" else {"type": around, key: inner}
    return record(inner)


def parsed_already(**named: Any) -> Schema:
    """What fastavro leaves in a schema that it parsed, made by hand: it would trust the names in it."""
    return {
        **record({"type": "fixed", "name": "X", "size": 0}, "X"),
        "__fastavro_parsed": True,
        "__named_schemas": named,
    }


HOSTILE: Mapping[str, Any] = {
    "2 ** 28 values of no bytes": chain(28, times=2),
    "chain of 30": chain(30),
    "chain of 5000": chain(5000),
    "recursive": record(["null", OURS]),
    "recursive through another": record(record({"type": "array", "items": "Y"}, name="Y")),
    "arrays in arrays": nested(30),
    "nested deeper than Python goes": nested(5000),
    "maps in maps in maps": nested(5000, "map"),
    "unions in unions": nested(20, "union"),
    "names that fastavro trusts": parsed_already(X=record("X", name="X")),
    "name with a quote in it": {"type": "record", "name": OURS, "fields": [{"name": 'a","type":"int"', "type": "int"}]},
    "array of nulls": record({"type": "array", "items": "null"}, "string"),
    "array of empty records": record({"type": "array", "items": record(name="E")}),
    "array of fixed of no bytes": record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
    "array of wide records of no bytes": record(
        {"type": "array", "items": {**record_of({f"n{n}": "null" for n in range(2000)}), "name": "Wide"}}
    ),
    "map of nulls": record({"type": "map", "values": "null"}),
    "fixed of a negative size": record({"type": "fixed", "name": "F", "size": -1}),
    "fixed of a huge size": record({"type": "fixed", "name": "F", "size": 1 << 62}),
    "fixed without a size": record({"type": "fixed", "name": "F"}),
    "enum without symbols": record({"type": "enum", "name": "E", "symbols": []}),
    "enum with a number": record({"type": "enum", "name": "E", "symbols": [1]}),
    "no fields": {"type": "record", "name": OURS},
    "fields that are no list": {"type": "record", "name": OURS, "fields": {"a": "int"}},
    "a field that is no object": {"type": "record", "name": OURS, "fields": ["int"]},
    "a field without a type": {"type": "record", "name": OURS, "fields": [{"name": "a"}]},
    "a field twice": {"type": "record", "name": OURS, "fields": [{"name": "tenant", "type": "string"}] * 2},
    "a type twice": record(record(name="T"), record(name="T")),
    "a type that nobody defines": record("Nobody"),
    "a name that is a number": {"type": "record", "name": 7, "fields": []},
    "a name that is nested": {"type": "record", "name": nested(5000), "fields": []},
    "a namespace that is a list": {"type": "record", "name": "R", "namespace": ["headrace.v1"], "fields": []},
    "no name": {"type": "record", "fields": []},
    "a long name": {"type": "record", "name": "x" * 1_000_000, "fields": []},
    "a union at the top": [record("int"), "null"],
    "a primitive at the top": "string",
    "nothing": None,
    "a number": 7,
    "an empty object": {},
    "a huge union": record(["null"] * 100_000),
    "many fields": record_of({f"f{n}": "null" for n in range(100_000)}),
    "a logical type on a record": record({"type": record(name="L"), "logicalType": "uuid"}),
    "a wrong decimal": record({"type": "bytes", "logicalType": "decimal", "precision": -4, "scale": "x"}),
    "an error at the top": {**record("string"), "type": "error"},
    "a type called array": record({"type": "record", "name": "array", "fields": []}, "array"),
    "a type called string": record({"type": "record", "name": "string", "fields": []}, "string"),
}  # fmt: skip
ENDLESS = frozenset({"2 ** 28 values of no bytes"})


def foreign(rng: random.Random, ours: Schema) -> Schema:
    """Our schema as some other service may have it: fields more, fewer, elsewhere, and of other types."""
    schema = copy.deepcopy(ours)
    fields: list[Schema] = schema["fields"]
    for field in fields:
        if rng.random() < 0.15:
            field["type"] = _other_type(rng, field["type"])
    if rng.random() < 0.2:
        fields.pop(rng.randrange(len(fields)))
    if rng.random() < 0.3:
        rng.shuffle(fields)
    for extra in range(rng.choice((0, 1, 3))):
        field = {"name": f"extra_{extra}", "type": _junk(rng, 3, f"J{extra}")}
        fields.insert(rng.randrange(len(fields) + 1), field)
    return schema


def _other_type(rng: random.Random, avro_type: Any) -> Any:
    promoted = {"long": "int", "double": rng.choice(("int", "long", "float")), "string": "bytes", "bytes": "string"}
    if isinstance(avro_type, str):
        wrapped = ([avro_type], ["null", avro_type], [avro_type, "bytes", "double"], {"type": avro_type, "x": [1]})
        return rng.choice((*wrapped, promoted.get(avro_type, "string"), rng.choice(_PRIMITIVES), _junk(rng, 2, "O")))
    if isinstance(avro_type, dict) and avro_type["type"] in ("array", "map"):
        key = "items" if avro_type["type"] == "array" else "values"
        return {**avro_type, key: _other_type(rng, avro_type[key])}
    if isinstance(avro_type, dict) and avro_type["type"] == "record":
        return foreign(rng, avro_type)
    return rng.choice((_junk(rng, 2, "O"), ["null", "string"], {"type": "long", "logicalType": "timestamp-millis"}))


def _junk(rng: random.Random, depth: int, name: str) -> Any:
    """Any type; `name` begins the names in it."""
    kind = rng.choice(("plain", "plain", "array", "map", "union", "record", "enum", "fixed", "logical"))
    if depth == 0 or kind == "plain":
        return rng.choice(_PRIMITIVES)
    if kind == "array":
        return {"type": "array", "items": _junk(rng, depth - 1, f"{name}a")}
    if kind == "map":
        return {"type": "map", "values": _junk(rng, depth - 1, f"{name}m")}
    if kind == "union":
        return ["null", rng.choice(_PRIMITIVES[1:]), {"type": "array", "items": "long"}]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["UP", "DOWN"], "logicalType": "direction"}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": rng.choice((0, 1, 16)), "logicalType": "decimal"}
    if kind == "logical":
        return {
            "type": rng.choice(("int", "string", "bytes", "long")),
            "logicalType": rng.choice(("uuid", "date", "x")),
        }
    return {**record(*(_junk(rng, depth - 1, f"{name}r{n}") for n in range(3)), name=name), "doc": "?"}


def random_json(rng: random.Random, depth: int = 4) -> Any:
    """JSON that uses the words of Avro, in no order."""
    words = (*_WORDS, OURS, *_PRIMITIVES)
    kind = rng.randrange(6 if depth else 3)
    if kind == 0:
        return rng.choice(words)
    if kind == 1:
        return rng.choice((None, True, 0, -1, 1 << 70, 0.5, "", "\ud800"))
    if kind == 2:
        return rng.choice(_PRIMITIVES)
    if kind == 3:
        return [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(words): random_json(rng, depth - 1) for _ in range(rng.randrange(6))}


def broken(rng: random.Random, ours: Schema) -> Any:
    """Our schema with something else in one place, whatever the place."""
    schema = copy.deepcopy(ours)
    places = list(_places(schema))
    container, key = rng.choice(places)
    container[key] = random_json(rng)
    return schema


def _places(node: Any) -> Any:
    for key in range(len(node)) if isinstance(node, list) else list(node):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])
