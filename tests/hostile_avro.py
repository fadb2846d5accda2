"""Bytes that no honest writer makes: Avro bodies with one thing wrong in a place where it can hurt.

A body is written from its schema, so that what is wrong stands where a reader takes it for what it claims to be: a
length, a count, the branch of a union. Everything is a function of a seed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

INT64_MIN = -(1 << 63)
FULL = 2 * 1024 * 1024 - 4096
"""About as many bytes as an event may have."""

_LENGTHS = (1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1)
_NEGATIVE = (-1, -2, -65_537, -(1 << 31), -(1 << 62), INT64_MIN)
_TEXTS = ("", "a", "Grüße", "\U0001f600", "x" * 40, "\0", "/%", "ﬃ" * 5)
_NOT_UTF8 = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")


@dataclass(frozen=True, slots=True)
class Payload:
    """One input. kind: what is wrong with it."""

    kind: str
    data: bytes


def varint(value: int) -> bytes:
    """Zigzag, as Avro writes ints and longs; of any size."""
    value = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class BodyWriter:
    """Writes a body of a schema with random values; `wrong` gets a chance to write something else in each place.

    wrong: called with (place, what would stand there); gives other bytes, or None. Places are `length`, `text`,
        `blocks`, `branch`, `number` and `double`.
    """

    def __init__(self, rng: random.Random, wrong: Callable[[str, bytes], bytes | None] | None = None) -> None:
        self._rng = rng
        self._wrong = wrong
        self._named: dict[str, Any] = {}
        self._values_left = 1000

    def body(self, schema: Any) -> bytes:
        self._values_left -= 1
        if schema == []:
            return b""
        if isinstance(schema, list):
            index = self._rng.randrange(len(schema))
            return self._place("branch", varint(index)) + self.body(schema[index])
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self.body(kind)
        is_name = isinstance(schema, str) and kind not in PRIMITIVES  # nobody can name a type like one of those
        if kind in self._named and (is_name or kind not in _WRITERS):
            return self.body(self._named[kind])
        if isinstance(schema, Mapping) and "name" in schema:
            self._named[schema["name"]] = self._named[f"{schema.get('namespace', 'headrace.v1')}.{schema['name']}"] = (
                schema
            )
        write = _WRITERS.get(kind)
        return write(self, schema) if write else self.body(kind)

    def _place(self, place: str, honest: bytes) -> bytes:
        other = self._wrong(place, honest) if self._wrong else None
        return honest if other is None else other

    def _record(self, schema: Mapping[str, Any]) -> bytes:
        return b"".join(self.body(field["type"]) for field in schema["fields"])

    def _array(self, schema: Mapping[str, Any]) -> bytes:
        return self._blocks([self.body(schema["items"]) for _ in range(self._few())])

    def _map(self, schema: Mapping[str, Any]) -> bytes:
        return self._blocks([self._text() + self.body(schema["values"]) for _ in range(self._few())])

    def _few(self) -> int:
        return self._rng.choice((0, 1, 3)) if self._values_left > 0 else 0

    def _blocks(self, items: list[bytes]) -> bytes:
        content = b"".join(items)
        sized = self._rng.random() < 0.3
        head = varint(-len(items)) + varint(len(content)) if sized else varint(len(items))
        honest = head + content + b"\0" if items else b"\0"
        return self._place("blocks", honest)

    def _number(self, schema: Any) -> bytes:
        bits = 31 if schema == "int" else 63
        value = self._rng.choice((0, 1, -1, self._rng.getrandbits(bits), -self._rng.getrandbits(bits) - 1))
        return self._place("number", varint(value))

    def _text(self, _schema: Any = None) -> bytes:
        text = self._rng.choice(_TEXTS).encode()
        return self._place("length", varint(len(text))) + self._place("text", text)

    def _double(self, _schema: Any) -> bytes:
        return self._place("double", struct.pack("<d", self._rng.random()))

    def _enum(self, schema: Mapping[str, Any]) -> bytes:
        return self._place("branch", varint(self._rng.randrange(len(schema["symbols"]) or 1)))


PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "string", "bytes"})
_WRITERS: dict[str, Callable[[BodyWriter, Any], bytes]] = {
    "null": lambda writer, schema: b"",
    "boolean": lambda writer, schema: b"\1",
    "int": BodyWriter._number,
    "long": BodyWriter._number,
    "float": lambda writer, schema: struct.pack("<f", 0.5),
    "double": BodyWriter._double,
    "string": BodyWriter._text,
    "bytes": BodyWriter._text,
    "fixed": lambda writer, schema: bytes(schema["size"]),
    "enum": BodyWriter._enum,
    "array": BodyWriter._array,
    "map": BodyWriter._map,
    "record": BodyWriter._record,
    "error": BodyWriter._record,
}


class Wrong:
    """One kind of damage, done in every place of its sort with a chance of three in ten."""

    def __init__(self, rng: random.Random, place: str, damage: Callable[[random.Random, bytes], bytes]) -> None:
        self._rng, self._place, self._damage = rng, place, damage

    def __call__(self, place: str, honest: bytes) -> bytes | None:
        return self._damage(self._rng, honest) if place == self._place and self._rng.random() < 0.3 else None


def _wide_varint(rng: random.Random, _honest: bytes) -> bytes:
    return b"\x80" * rng.choice((9, 10, 11, 64, 5000)) + rng.choice((b"\0", b"\1", b"\x7f"))


def _claimed_items(rng: random.Random, honest: bytes) -> bytes:
    """The same content under a count that is not true, in one block or under a block size that is not true either."""
    content = honest[1:]
    count = rng.choice((*_LENGTHS, *_NEGATIVE, 65_537))
    if count < 0:
        return varint(count) + varint(rng.choice((*_LENGTHS, *_NEGATIVE, 0, len(content)))) + content
    return varint(count) + content


DAMAGE: Mapping[str, tuple[str, Callable[[random.Random, bytes], bytes]]] = {
    "huge length": ("length", lambda rng, _: varint(rng.choice(_LENGTHS))),
    "negative length": ("length", lambda rng, _: varint(rng.choice(_NEGATIVE))),
    "count that is not true": ("blocks", _claimed_items),
    "many empty blocks": ("blocks", lambda rng, honest: varint(-1) + varint(0) + honest),
    "number of more than 64 bits": ("number", _wide_varint),
    "length of more than 64 bits": ("length", _wide_varint),
    "int of more than 32 bits": ("number", lambda rng, _: varint(rng.choice((1 << 31, -(1 << 31) - 1, 1 << 62)))),
    "no such branch": ("branch", lambda rng, _: varint(rng.choice((2, 17, *_LENGTHS, *_NEGATIVE)))),
    "text that is not UTF-8": ("text", lambda rng, honest: _of_length(rng.choice(_NOT_UTF8), len(honest))),
    "not a number": ("double", lambda rng, _: rng.choice((b"\xff" * 8, struct.pack("<d", float("inf"))))),
}  # fmt: skip


def _of_length(data: bytes, length: int) -> bytes:
    return (data * (length // len(data) + 1))[:length]


# What an array or a map is filled with, up to the most that an event may have. The texts are Armenian letters: Python
# has no objects of those at hand, as it has of Latin ones.
_FILLINGS: tuple[tuple[str, bytes], ...] = (
    ("nothing but zeros", b"\0"),
    ("ones", b"\2"),
    ("small texts", b"\4\xd5\xa1"),
    ("numbers", b"\xfe\x7f"),
    ("large numbers", b"\xfe\xff\xff\xff\x0f"),
    ("pairs of small texts", b"\4\xd5\xa1\4\xd5\xa2"),
    ("blocks of one", b"\2\2"),
)


def full_payload(rng: random.Random, schema: Any, header: bytes) -> Payload:
    """An event as large as may be, of small items, or with one giant text."""
    room = FULL if rng.random() < 0.5 else rng.randrange(60_000, FULL)
    if rng.random() < 0.3:
        return _giant_text(rng, schema, header, room)
    name, item = rng.choice(_FILLINGS)
    count = room // len(item)
    claimed = rng.choice((count, count // 2, count // 3, 65_536, 65_537, 1 << 60))
    claimed_head = varint(claimed) if rng.random() < 0.7 else varint(-claimed) + varint(room)
    filled = iter([claimed_head + item * count + b"\0"])

    def wrong(place: str, _honest: bytes) -> bytes | None:
        return next(filled, None) if place == "blocks" else None

    return Payload(f"full of {name}", header + BodyWriter(rng, wrong).body(schema))


def _giant_text(rng: random.Random, schema: Any, header: bytes, room: int) -> Payload:
    text = rng.choice((b"a" * room, b"\xf0\x9f\x98\x80" * (room // 4), b"a" * (room - 4) + b"\xf0\x9f\x98\x80"))
    lengths, texts = iter([varint(len(text))]), iter([text])

    def wrong(place: str, _honest: bytes) -> bytes | None:
        return next(lengths, None) if place == "length" else next(texts, None) if place == "text" else None

    return Payload("giant text", header + BodyWriter(rng, wrong).body(schema))


def spoilt(rng: random.Random, kind: str, data: bytes, header_bytes: int) -> bytes:
    """Whole events, damaged with no regard for what they hold."""
    match kind:
        case "truncated":
            return data[: rng.randrange(len(data))]
        case "bits flipped":
            damaged = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 8))):
                damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(damaged)
        case "left over":
            return data + rng.randbytes(rng.randrange(1, 20))
        case "spliced":
            at = rng.randrange(header_bytes, len(data) + 1)
            cut = rng.randrange(0, 8)
            return data[:at] + rng.randbytes(rng.randrange(0, 8)) + data[at + cut :]
        case "random body":
            return data[:header_bytes] + rng.randbytes(rng.randrange(0, 200))
        case "wrong header":
            return rng.randbytes(header_bytes) + data[header_bytes:]
        case "too large":
            return data + bytes(2 * 1024 * 1024)
    raise ValueError(kind)


SPOILT = ("truncated", "bits flipped", "left over", "spliced", "random body", "wrong header")


@dataclass(frozen=True, slots=True)
class Writer:
    """A schema and the header before its bodies. is_endless: no body of it can be written, only claimed."""

    header: bytes
    schema: Any
    is_endless: bool = False


def payloads(seed: int, count: int, writers: list[Writer]) -> Iterator[Payload]:
    """So many inputs. writers: everything that a reader may meet."""
    for index in range(count):
        yield _payload(random.Random(seed * 1_000_003 + index), writers)


def _payload(rng: random.Random, writers: list[Writer]) -> Payload:
    writer = rng.choice(writers)
    header, schema, luck = writer.header, writer.schema, rng.random()
    if writer.is_endless:
        return Payload(
            "endless schema", header + bytes(rng.choice((0, 1, 40, 4000))) + rng.randbytes(rng.randrange(40))
        )
    if luck < 0.001:
        return full_payload(rng, schema, header)
    if luck < 0.002:
        return Payload("too large", spoilt(rng, "too large", header + BodyWriter(rng).body(schema), len(header)))
    if luck < 0.5:
        kind = rng.choice(SPOILT)
        return Payload(kind, spoilt(rng, kind, header + BodyWriter(rng).body(schema), len(header)))
    if luck < 0.9:
        kind, (place, damage) = rng.choice(list(DAMAGE.items()))
        return Payload(kind, header + BodyWriter(rng, Wrong(rng, place, damage)).body(schema))
    if luck < 0.95:
        other = rng.choice([other for other in writers if not other.is_endless])
        return Payload("another schema's body", header + BodyWriter(rng).body(other.schema))
    return Payload("honest", header + BodyWriter(rng).body(schema))
