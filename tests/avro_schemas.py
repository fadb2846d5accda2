"""Random Avro schemas, random changes to them, and random values that they allow (hypothesis)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
SYMBOLS = ["UP", "DOWN", "LEFT", "RIGHT"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    # Avro lets bytes be read as text. Ours are text: that not all bytes are is what the rule text_and_bytes is for.
    "bytes": TEXT.map(str.encode),
    "string": TEXT,
}

Draw = Callable[[st.SearchStrategy[Any]], Any]
Place = tuple[Any, Any]  # a container and the key in it where a type stands


@st.composite
def schemas(draw: Draw) -> dict[str, Any]:
    """A record with everything in it: nested and named types, names used again, itself."""
    tree = draw(st.lists(_types(), min_size=1, max_size=4))
    names: Iterator[int] = iter(range(1000))
    fields = _named_fields(tree, names)
    root = {"type": "record", "name": "Root", "namespace": "a.b", "fields": fields}
    if draw(st.booleans()):
        fields.append({"name": "again", "type": ["null", "Root"], "default": None})
    defined = [node["name"] for node in _nodes(root) if isinstance(node, dict) and "name" in node and "type" in node]
    reusable = [name for name in defined if name[:1] in "EFR" and name != "Root"]
    if reusable:
        name = draw(st.sampled_from(reusable))
        fields.append({"name": "once_more", "type": {"type": "array", "items": draw(_spelling(name))}})
    return root


def _spelling(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name, f"a.b.{name}"])


def _types() -> st.SearchStrategy[Any]:
    symbols = st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True)
    leaves = (
        st.sampled_from(PRIMITIVES)
        | symbols.map(lambda chosen: {"type": "enum", "symbols": chosen})
        | st.integers(0, 4).map(lambda size: {"type": "fixed", "size": size})
    )
    return st.recursive(
        leaves,
        lambda inner: (
            inner.map(lambda items: {"type": "array", "items": items})
            | inner.map(lambda values: {"type": "map", "values": values})
            | st.lists(inner, min_size=1, max_size=3).map(lambda fields: {"type": "record", "fields": fields})
            | st.lists(inner, min_size=1, max_size=3, unique_by=_kind).map(_flat_union)
        ),
        max_leaves=5,
    )


def _kind(type_: Any) -> str:
    return "union" if isinstance(type_, list) else type_ if isinstance(type_, str) else str(type_["type"])


def _flat_union(branches: list[Any]) -> Any:
    return [branch for branch in branches if not isinstance(branch, list)] or "null"


def _named_fields(types: list[Any], names: Iterator[int]) -> list[dict[str, Any]]:
    return [{"name": f"f{index}", "type": _named(type_, names)} for index, type_ in enumerate(types)]


def _named(type_: Any, names: Iterator[int]) -> Any:
    """The type with a name of its own for everything that needs one."""
    if isinstance(type_, list):
        return [_named(branch, names) for branch in type_]
    if isinstance(type_, str):
        return type_
    match type_["type"]:
        case "array":
            return {"type": "array", "items": _named(type_["items"], names)}
        case "map":
            return {"type": "map", "values": _named(type_["values"], names)}
        case "record":
            name = f"R{next(names)}"
            return {"type": "record", "name": name, "fields": _named_fields(type_["fields"], names)}
        case kind:
            return {**type_, "name": f"{kind[0].upper()}{next(names)}"}


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    if isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            yield from _nodes(inner)


def records_in(schema: Any) -> list[dict[str, Any]]:
    """Every record in the schema, to be changed in place."""
    return [node for node in _nodes(schema) if isinstance(node, dict) and node.get("type") == "record"]


def _places(node: Any) -> Iterator[Place]:
    """Every place in which a type stands."""
    if isinstance(node, list):
        for index, branch in enumerate(node):
            yield node, index
            yield from _places(branch)
    elif isinstance(node, dict):
        for key in ("items", "values"):
            if key in node:
                yield node, key
                yield from _places(node[key])
        for field in node.get("fields", ()):
            yield field, "type"
            yield from _places(field["type"])


def without_logical_types(node: Any) -> Any:
    """The schema with times as the integers that they are: fastavro would make datetimes, and not of every long."""
    if isinstance(node, dict):
        return {key: without_logical_types(inner) for key, inner in node.items() if key != "logicalType"}
    return [without_logical_types(inner) for inner in node] if isinstance(node, list) else node


@st.composite
def changed(draw: Draw, schema: Any) -> Any:
    """The schema after one to three changes of any kind, good or bad. It may be no valid schema any more."""
    result = copy.deepcopy(schema)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(result))
        if not places or draw(st.booleans()):
            _change_record(draw, draw(st.sampled_from(records_in(result))))
        else:
            container, key = draw(st.sampled_from(places))
            container[key] = _changed_type(draw, container[key])
    return result


def _change_record(draw: Draw, record: dict[str, Any]) -> None:
    fields = record["fields"]
    match draw(st.sampled_from(["add", "add with default", "drop", "turn", "alias", "rename", "default"])):
        case "add":
            fields.append({"name": "added", "type": draw(st.sampled_from(PRIMITIVES))})
        case "add with default":
            fields.insert(0, {"name": "added", "type": ["null", "string"], "default": None})
        case "drop" if fields:
            fields.remove(draw(st.sampled_from(fields)))
        case "turn":
            fields.reverse()
        case "alias" if fields:
            chosen = draw(st.sampled_from(fields))
            chosen["aliases"] = [chosen["name"]]
            chosen["name"] = "renamed"
        case "rename":
            record["aliases"] = draw(st.sampled_from([[], [record["name"]]]))
            record["name"] = "Renamed"
        case "default" if fields:
            draw(st.sampled_from(fields))["default"] = None


def _changed_type(draw: Draw, type_: Any) -> Any:
    if isinstance(type_, list):
        return draw(
            st.permutations(type_) | st.just(type_[1:] or "null") | st.just([*type_, "bytes"]) | st.sampled_from(type_)
        )
    if isinstance(type_, dict) and type_["type"] == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        default = draw(st.sampled_from([{}, {"default": symbols[0]}]))
        return {"type": "enum", "name": type_["name"], "symbols": symbols, **default}
    if isinstance(type_, dict) and type_["type"] == "fixed" and draw(st.booleans()):
        return {**type_, "size": type_["size"] + 1}
    return draw(st.just(["null", type_]) | st.just([type_]) | st.sampled_from(PRIMITIVES))


@st.composite
def values_of(draw: Draw, schema: Any) -> Any:
    """A value that the schema allows, as fastavro takes it."""
    named = {node["name"]: node for node in _nodes(schema) if isinstance(node, dict) and "name" in node}
    return _value(draw, schema, {short.rpartition(".")[2]: node for short, node in named.items()}, 0)


def _value(draw: Draw, type_: Any, named: dict[str, Any], depth: int) -> Any:
    if isinstance(type_, list):
        # the first branch ends what holds itself
        return _value(draw, type_[0] if depth > 8 else draw(st.sampled_from(type_)), named, depth + 1)
    if isinstance(type_, str):
        if type_ in _SIMPLE:
            return draw(_SIMPLE[type_])
        return _value(draw, named[type_.rpartition(".")[2]], named, depth + 1)
    match type_["type"]:
        case "array":
            return [_value(draw, type_["items"], named, depth + 1) for _ in range(draw(st.integers(0, 2)))]
        case "map":
            return {key: _value(draw, type_["values"], named, depth + 1) for key in draw(st.sets(TEXT, max_size=2))}
        case "record":
            return {field["name"]: _value(draw, field["type"], named, depth + 1) for field in type_["fields"]}
        case "enum":
            return draw(st.sampled_from(type_["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=type_["size"], max_size=type_["size"]))
        case _:
            return _value(draw, type_["type"], named, depth)
