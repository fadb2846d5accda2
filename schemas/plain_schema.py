"""A schema reduced to what bytes are read and written with: no docs, no logical types, no properties of anybody's own.

Nothing of a schema from outside gets further than here unless it is understood: an Avro library trusts keys that it
left itself in a schema that it parsed, and follows a nested schema as deep as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import UnusableSchema

PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
MAX_NODES = 10_000
"""Most types, fields and symbols in a schema from outside."""
MAX_FIXED_BYTES = 2 * 1024 * 1024

_MAX_DEPTH = 64
_MAX_NAME_CHARS = 1_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


def without_logical_types(schema: Any) -> Any:
    """A schema of ours. Times stay integers in process: fastavro would build a datetime for each one."""
    return _Plain(keep_defaults=True).of(schema, 0)


def plain_writer_schema(schema: Any) -> Any:
    """A schema from outside, to read with: a writer's defaults and aliases play no part in that.

    Raises UnusableSchema for what is no Avro schema, nested more than 64 deep, or larger than any event needs.
    """
    return _Plain(keep_defaults=False).of(schema, 0)


class _Plain:
    """One walk over one schema."""

    def __init__(self, *, keep_defaults: bool) -> None:
        self._kept = ("default", "aliases") if keep_defaults else ()
        self._nodes_left = MAX_NODES

    def of(self, node: Any, depth: int) -> Any:
        self._count(1)
        if depth > _MAX_DEPTH:
            raise UnusableSchema(f"the schema is nested more than {_MAX_DEPTH} deep")
        if isinstance(node, list):
            return [self.of(branch, depth + 1) for branch in node]
        if not isinstance(node, Mapping):
            return plain_name(node)
        kind = node.get("type")
        if kind in ("record", "error"):
            return self._named(node, fields=self._fields(node, depth))
        if kind == "enum":
            return self._named(node, symbols=self._symbols(node))
        if kind == "fixed":
            return self._named(node, size=_size(node))
        if kind == "array":
            return {"type": "array", "items": self.of(node.get("items"), depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self.of(node.get("values"), depth + 1)}
        return self.of(kind, depth + 1)  # {"type": "long", "logicalType": ...} is a long

    def _named(self, node: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
        plain = {"type": node["type"], "name": plain_name(node.get("name"))}
        if namespace := node.get("namespace"):
            plain["namespace"] = plain_name(namespace)
        elif namespace == "":
            plain["namespace"] = ""
        return {**plain, **parts, **self._extras(node)}

    def _fields(self, node: Mapping[str, Any], depth: int) -> list[dict[str, Any]]:
        plain = []
        for field in _list(node, "fields"):
            if not isinstance(field, Mapping):
                raise UnusableSchema(f"a field that is no object: {_shown(field)}")
            name = plain_name(field.get("name"))
            plain.append({"name": name, "type": self.of(field.get("type"), depth + 1), **self._extras(field)})
        return plain

    def _symbols(self, node: Mapping[str, Any]) -> list[str]:
        symbols = _list(node, "symbols")
        self._count(len(symbols))
        return [plain_name(symbol) for symbol in symbols]

    def _extras(self, node: Mapping[str, Any]) -> dict[str, Any]:
        return {key: node[key] for key in self._kept if key in node}

    def _count(self, nodes: int) -> None:
        self._nodes_left -= nodes
        if self._nodes_left < 0:
            raise UnusableSchema(f"the schema has more than {MAX_NODES} types and symbols")


def plain_name(value: Any) -> str:
    """The name, with dots or without. Raises UnusableSchema for what Avro does not allow as one."""
    if not isinstance(value, str) or len(value) > _MAX_NAME_CHARS or not _NAME.fullmatch(value):
        raise UnusableSchema(f"{_shown(value)} is no name of a type, field or symbol")
    return value


def _size(node: Mapping[str, Any]) -> int:
    size = node.get("size")
    if type(size) is not int or not 0 <= size <= MAX_FIXED_BYTES:
        raise UnusableSchema("a fixed type whose size is not a number of bytes")
    return size


def _list(node: Mapping[str, Any], key: str) -> list[Any]:
    value = node.get(key)
    if not isinstance(value, list):
        raise UnusableSchema(f"{key} that are no list: {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """For a message: not all of something large, and not the depth of something nested."""
    return repr(value[:40]) if isinstance(value, str) else f"a {type(value).__name__}"
