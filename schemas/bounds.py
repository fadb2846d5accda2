"""Limits on what bytes can make a reader do: checked before the Avro reader builds anything.

A record of two empty strings is two bytes of Avro and several hundred bytes of Python; an array of items without bytes
can claim any length; a schema of thirty records, each of which holds the one before twice, has a billion values in no
bytes at all. So a body is walked over first, and what would be built is counted, without building it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import UndecodableEvent, UnusableSchema

MAX_EVENT_BYTES = 2 * 1024 * 1024
MAX_ITEMS = 65_536
"""Most items of an event's maps and arrays together, except arrays of numbers and other values of a fixed size."""

MAX_BUILT_BYTES = 40 * 1024 * 1024
"""Most memory that an event's values may take, as reckoned here, beside the characters of its texts."""

SMALL_BYTES = 64 * 1024
"""Bodies up to here, of schemas of ours, need no check: no event takes more than 200 times the memory of its bytes."""

_NUMBER_BYTES = 48  # an int object, its place in a list and in a tuple
_VALUE_BYTES = 160  # a field or an entry: its share of a dictionary and an object, and an empty text

_MAX_DEPTH = 32
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_CONTINUED = bytes(range(0x80, 0x100))  # bytes of a varint that another one follows
_TOO_LONG = re.compile(b"[\x80-\xff]{10}")
_TOO_MANY_BITS = "a number has more than 64 bits"
_TOO_DEEP = f"the writer's schema is nested more than {_MAX_DEPTH} deep"
Skip = Callable[["_Walk"], None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How to walk over bodies of one schema. always: even over small ones."""

    skip: Skip
    always: bool

    @classmethod
    def of(cls, schema: Any, *, always: bool) -> Bounds | None:
        """None for a schema of ours without arrays and maps: nothing in it grows.

        schema: parsed by fastavro, so that both understand the same by a name.

        Raises UnusableSchema for one that is recursive, nested too deep, or not to be understood.
        """
        way = _Compiler().compile(schema, 0)
        return cls(way.skip, always) if always or way.grows else None


def check_bounds(data: bytes, start: int, bounds: Bounds) -> None:
    """Raises UndecodableEvent for a body that is cut short or makes too many values.

    And for a block that lies about its size: a reader that skips the block goes by that.
    """
    walk = _Walk(data, start)
    try:
        bounds.skip(walk)
    except IndexError:
        raise UndecodableEvent(f"{len(data)} bytes are cut short") from None


class _Walk:
    """A place in the bytes, and what may still be built."""

    __slots__ = ("at", "bytes_left", "data", "items_left")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.items_left = MAX_ITEMS
        self.bytes_left = MAX_BUILT_BYTES

    def build(self, values: int, bytes_each: int = _VALUE_BYTES) -> None:
        self.bytes_left -= values * bytes_each
        if self.bytes_left < 0:
            raise UndecodableEvent(f"its values would take more than {MAX_BUILT_BYTES} bytes")

    def long(self) -> int:
        """A zigzag varint. Raises IndexError at the end of the bytes."""
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        value, shift = byte & 0x7F, 7
        while byte > 0x7F:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                break
        if value >> 64 or shift > 70:
            raise UndecodableEvent(_TOO_MANY_BITS)
        self.at = at
        return (value >> 1) ^ -(value & 1)

    def longs(self, count: int) -> None:
        """So many varints, in a few passes at the speed of C: a varint ends at a byte below 0x80."""
        start = self.at
        while count > 16:
            piece = self.data[self.at : self.at + count]  # no more than `count` of them end in it
            if len(piece) < count:
                raise IndexError
            ended = len(piece.translate(None, _CONTINUED))
            if count > 10 * ended + 9:
                raise UndecodableEvent(_TOO_MANY_BITS)
            self.at += count
            count -= ended
        if _TOO_LONG.search(self.data, start, self.at):
            raise UndecodableEvent(_TOO_MANY_BITS)
        for _ in range(count):
            self.long()

    def forward(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise UndecodableEvent(f"a length of {size_bytes} bytes")
        self.at += size_bytes
        if self.at > len(self.data):
            raise UndecodableEvent(f"a length of {size_bytes} bytes, {self.at - len(self.data)} more than there are")

    def blocks(self, items: Callable[[_Walk, int], None]) -> None:
        """Arrays and maps: blocks of counted items up to a block of none."""
        while count := self.long():
            self.build(1)
            if count > 0:
                items(self, count)
                continue
            size_bytes = self.long()
            end = self.at + size_bytes
            items(self, -count)
            if self.at != end:
                raise UndecodableEvent(f"a block of {self.at - end + size_bytes} bytes says that it has {size_bytes}")


def _long(walk: _Walk) -> None:
    walk.long()


def _longs(walk: _Walk, count: int) -> None:
    walk.build(count, _NUMBER_BYTES)
    walk.longs(count)


def _string(walk: _Walk) -> None:
    walk.forward(walk.long())


@dataclass(frozen=True, slots=True)
class _Way:
    """How to pass over a value of one type.

    height: how deep the values in it are nested.
    size_bytes: of each value, where all have the same.
    """

    skip: Skip
    height: int = 0
    grows: bool = False
    size_bytes: int | None = None

    @property
    def skip_many(self) -> Callable[[_Walk, int], None]:
        """How to pass over so many values of an array."""
        if self.skip is _long:
            return _longs
        size_bytes, skip = self.size_bytes, self.skip

        def sized(walk: _Walk, count: int) -> None:
            walk.build(count, _NUMBER_BYTES + (size_bytes or 0))
            walk.forward(count * (size_bytes or 0))

        def walked(walk: _Walk, count: int) -> None:
            walk.items_left -= count
            if walk.items_left < 0:
                raise UndecodableEvent(f"more than {MAX_ITEMS} items")
            walk.build(count)
            for _ in range(count):
                skip(walk)

        return walked if size_bytes is None else sized


def _sized(size_bytes: int) -> _Way:
    return _Way(lambda walk: walk.forward(size_bytes), size_bytes=size_bytes)


_LONG = _Way(_long)
_STRING = _Way(_string)
_PRIMITIVES = {
    "int": _LONG, "long": _LONG, "string": _STRING, "bytes": _STRING,
    **{name: _sized(size) for name, size in _FIXED_BYTES.items()},
}  # fmt: skip


class _Compiler:
    """From a schema to a way over a value of it."""

    def __init__(self) -> None:
        self._named: dict[str, _Way | None] = {}  # None: it is being compiled

    def compile(self, schema: Any, depth: int) -> _Way:
        if isinstance(schema, str):
            way = _PRIMITIVES.get(schema) or self._known(schema)
        else:
            if depth > _MAX_DEPTH:
                raise UnusableSchema(_TOO_DEEP)
            way = self._compiled(schema, depth)
        if depth + way.height > _MAX_DEPTH:
            raise UnusableSchema(_TOO_DEEP)
        return way

    def _compiled(self, schema: Any, depth: int) -> _Way:
        if isinstance(schema, list):
            return self._union([self.compile(branch, depth + 1) for branch in schema])
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, depth)
        if kind in ("enum", "fixed"):
            way = _Way(_long) if kind == "enum" else _sized(schema["size"])
            self._named[schema["name"]] = way
            return way
        if kind == "array":
            items = self.compile(schema["items"], depth + 1)
            skip_many = items.skip_many
            return _Way(lambda walk: walk.blocks(skip_many), items.height + 1, grows=True)
        if kind == "map":
            return self._map(self.compile(schema["values"], depth + 1))
        raise UnusableSchema(f"the writer's schema has a type {kind!r}")

    def _known(self, name: str) -> _Way:
        if name not in self._named:
            raise UnusableSchema(f"the writer's schema names the type {name}, which it does not define")
        known = self._named[name]
        if known is None:
            raise UnusableSchema(f"the writer's schema is recursive: {name} contains itself")
        return known

    def _record(self, schema: Mapping[str, Any], depth: int) -> _Way:
        name = schema["name"]
        self._named[name] = None
        fields = [self.compile(field["type"], depth + 1) for field in schema["fields"]]
        skips = tuple(field.skip for field in fields)

        def skip(walk: _Walk) -> None:
            walk.build(len(skips))
            for field in skips:
                field(walk)

        way = _Way(skip, 1 + max((field.height for field in fields), default=0), any(field.grows for field in fields))
        self._named[name] = way
        return way

    def _map(self, values: _Way) -> _Way:
        skip_value = values.skip

        def entry(walk: _Walk) -> None:
            walk.build(1)
            _string(walk)
            skip_value(walk)

        entries = _Way(entry).skip_many
        return _Way(lambda walk: walk.blocks(entries), values.height + 1, grows=True)

    def _union(self, branches: list[_Way]) -> _Way:
        def skip(walk: _Walk) -> None:
            index = walk.long()
            if not 0 <= index < len(branches):
                raise UndecodableEvent(f"branch {index} of a union of {len(branches)}")
            branches[index].skip(walk)

        height = 1 + max((branch.height for branch in branches), default=0)
        return _Way(skip, height, any(branch.grows for branch in branches))
