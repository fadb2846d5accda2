"""Limits on what bytes can make a reader do: checked before the Avro reader builds anything.

A record of two empty strings is two bytes of Avro and several hundred bytes of Python, and an array of items without
bytes can claim any length. So the items of a body are counted first, by walking over it without building them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import UndecodableEvent, UnusableSchema

MAX_EVENT_BYTES = 2 * 1024 * 1024
MAX_ITEMS = 65_536
"""Most items, of all arrays and maps together, in an event that has arrays of records, or maps."""

_MAX_DEPTH = 32
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
Skip = Callable[["_Walk"], None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How to walk over bodies of one schema. always: even over small ones."""

    skip: Skip
    always: bool

    @classmethod
    def of(cls, schema: Any, *, always: bool) -> Bounds | None:
        """None for a schema of ours in which nothing grows much: no maps, no arrays of records.

        Raises UnusableSchema for one that is recursive, nested too deep, or not to be understood.
        """
        skip = _Compiler().compile(schema, "", 0)
        return cls(skip, always) if always or _grows(schema) else None


def check_bounds(data: bytes, start: int, bounds: Bounds) -> None:
    """Raises UndecodableEvent for a body that is cut short, or has more than MAX_ITEMS items."""
    walk = _Walk(data, start)
    try:
        bounds.skip(walk)
    except IndexError:
        raise UndecodableEvent(f"{len(data)} bytes are cut short") from None


class _Walk:
    """A place in the bytes, and the items that may still come."""

    __slots__ = ("at", "data", "items_left")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.items_left = MAX_ITEMS

    def long(self) -> int:
        """A zigzag varint. Raises IndexError at the end of the bytes."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise UndecodableEvent("a number has more than 64 bits")

    def forward(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise UndecodableEvent(f"a length of {size_bytes} bytes")
        self.at += size_bytes
        if self.at > len(self.data):
            raise UndecodableEvent(f"a length of {size_bytes} bytes, {self.at - len(self.data)} more than there are")

    def blocks(self, item: Skip) -> None:
        """Arrays and maps: blocks of counted items up to a block of none."""
        while count := self.long():
            if count < 0:  # the size of the block follows; it is not trusted
                count = -count
                self.long()
            self.items_left -= count
            if self.items_left < 0:
                raise UndecodableEvent(f"more than {MAX_ITEMS} items")
            for _ in range(count):
                item(self)


def _long(walk: _Walk) -> None:
    walk.long()


def _string(walk: _Walk) -> None:
    walk.forward(walk.long())


def _fixed(size_bytes: int) -> Skip:
    return lambda walk: walk.forward(size_bytes)


class _Compiler:
    """From a schema to a function that skips a value of it."""

    def __init__(self) -> None:
        self._named: dict[str, Skip | None] = {}  # None: it is being compiled

    def compile(self, schema: Any, namespace: str, depth: int) -> Skip:
        if depth > _MAX_DEPTH:
            raise UnusableSchema(f"the writer's schema is nested more than {_MAX_DEPTH} deep")
        if isinstance(schema, str):
            return self._primitive_or_named(schema, namespace)
        if isinstance(schema, list):
            return self._union([self.compile(branch, namespace, depth + 1) for branch in schema])
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, namespace, depth)
        if kind in ("enum", "fixed"):
            skip = _long if kind == "enum" else _fixed(int(schema["size"]))
            self._named[_full_name(schema, namespace)] = skip
            return skip
        if kind == "array":
            item = self.compile(schema["items"], namespace, depth + 1)
            return lambda walk: walk.blocks(item)
        if kind == "map":
            value = self.compile(schema["values"], namespace, depth + 1)

            def entry(walk: _Walk) -> None:
                _string(walk)
                value(walk)

            return lambda walk: walk.blocks(entry)
        return self.compile(kind, namespace, depth + 1)

    def _primitive_or_named(self, name: str, namespace: str) -> Skip:
        if name in ("int", "long"):
            return _long
        if name in ("string", "bytes"):
            return _string
        if name in _FIXED_BYTES:
            return _fixed(_FIXED_BYTES[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._named:
            raise UnusableSchema(f"the writer's schema names the type {full}, which it does not define")
        known = self._named[full]
        if known is None:
            raise UnusableSchema(f"the writer's schema is recursive: {full} contains itself")
        return known

    def _record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> Skip:
        full = _full_name(schema, namespace)
        self._named[full] = None
        inner = full.rpartition(".")[0]
        fields = [self.compile(field["type"], inner, depth + 1) for field in schema["fields"]]

        def skip(walk: _Walk) -> None:
            for field in fields:
                field(walk)

        self._named[full] = skip
        return skip

    def _union(self, branches: list[Skip]) -> Skip:
        def skip(walk: _Walk) -> None:
            index = walk.long()
            if not 0 <= index < len(branches):
                raise UndecodableEvent(f"branch {index} of a union of {len(branches)}")
            branches[index](walk)

        return skip


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema["name"])
    around = schema.get("namespace", namespace)
    return name if "." in name or not around else f"{around}.{name}"


def _grows(schema: Any) -> bool:
    """Whether there is a map or an array of anything but plain values in it."""
    if isinstance(schema, list):
        return any(_grows(branch) for branch in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema["type"] in ("record", "error"):
        return any(_grows(field["type"]) for field in schema["fields"])
    if schema["type"] == "array":
        return not isinstance(schema["items"], str)
    return bool(schema["type"] == "map")
