"""Writers of Avro bodies: for each schema of ours, a function from a record's fields to its bytes.

fastavro looks for the branch of a union by validating the value against each one, and most of a request's fields are
unions with null: knowing the schema beforehand halves the time. It also writes an int of any size, which other Avro
libraries then refuse to read; here it has 32 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

Write = Callable[[Any], bytes]
_MISFITS = (TypeError, ValueError, AttributeError, KeyError, OverflowError, struct.error)
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


def record_writer(record: Mapping[str, Any]) -> Write:
    """From a mapping of a record's fields, tuples and nested records as they are in an event, to Avro.

    record: a schema of ours without logical types: a union is null and one more type, and nothing is an enum, a fixed
        or recursive. ValueError for any other.

    The function raises ValueError for what does not fit, with the names of the fields that lead to it.
    """
    names = [field["name"] for field in record["fields"]]
    writers = [_writer(field["type"]) for field in record["fields"]]
    get = itemgetter(*names) if len(names) > 1 else lambda fields: [fields[name] for name in names]

    def write(fields: Mapping[str, Any]) -> bytes:
        try:
            return b"".join([writer(value) for writer, value in zip(writers, get(fields), strict=True)])
        except _MISFITS:
            raise ValueError(_misfit(fields, names, writers)) from None

    return write


def _misfit(fields: Mapping[str, Any], names: list[str], writers: list[Write]) -> str:
    """Which field it is, and why."""
    for name, writer in zip(names, writers, strict=True):
        try:
            writer(fields[name])
        except KeyError:
            return f"there is no {name}"
        except _MISFITS as error:
            return f"{name}: {error}"
    raise AssertionError("each field fits, and the record does not")


def _writer(avro_type: Any) -> Write:
    if isinstance(avro_type, list):
        if len(avro_type) != 2 or avro_type[0] != "null":
            raise ValueError(f"a union that is not null and one more type: {avro_type}")
        return _optional(_writer(avro_type[1]))
    if isinstance(avro_type, str):
        if avro_type not in _PRIMITIVES:
            raise ValueError(f"no event of ours has a {avro_type}")
        return _PRIMITIVES[avro_type]
    if avro_type["type"] == "array":
        return _array(_writer(avro_type["items"]))
    if avro_type["type"] == "map":
        return _map(_writer(avro_type["values"]))
    if avro_type["type"] == "record":
        write = record_writer(avro_type)
        return lambda value: write(vars(value))
    raise ValueError(f"no event of ours has a {avro_type['type']}")


def _optional(write: Write) -> Write:
    return lambda value: b"\0" if value is None else b"\2" + write(value)


def _array(write: Write) -> Write:
    def array(values: Any) -> bytes:
        if type(values) is not tuple and type(values) is not list:  # a text is a sequence too
            raise TypeError(f"a {type(values).__name__} in place of a tuple")
        if not values:
            return b"\0"
        return b"%b%b\0" % (_long(len(values)), b"".join([write(value) for value in values]))

    return array


def _map(write: Write) -> Write:
    def entries(values: Any) -> bytes:
        if not isinstance(values, Mapping):
            raise TypeError(f"a {type(values).__name__} in place of a mapping")
        if not values:
            return b"\0"
        items = [_string(key) + write(value) for key, value in values.items()]
        return b"%b%b\0" % (_long(len(items)), b"".join(items))

    return entries


def _string(value: str) -> bytes:
    data = value.encode()
    size = len(data)
    return (_TABLE[size] if size < len(_TABLE) else _varint(size)) + data


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _int(value: int) -> bytes:
    if 0 <= value < len(_TABLE):
        return _TABLE[value]
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"{value!r:.40} has more than the 32 bits of an int")
    return _varint(value)


def _long(value: int) -> bytes:
    if 0 <= value < len(_TABLE):
        return _TABLE[value]
    if not LONG_MIN <= value <= LONG_MAX:
        raise ValueError(f"{value!r:.40} has more than the 64 bits of a long")
    return _varint(value)


def _varint(value: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first; two bytes a step here."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    out = b""
    while rest > 0x3FFF:
        out += _PAIRS[rest & 0x3FFF]
        rest >>= 14
    return out + (bytes((rest,)) if rest < 0x80 else bytes((rest & 0x7F | 0x80, rest >> 7)))


_PAIRS = [bytes((pair & 0x7F | 0x80, pair >> 7 | 0x80)) for pair in range(1 << 14)]
_TABLE = [_varint(value) for value in range(8192)]
"""Of lengths, counts and most numbers."""

_PRIMITIVES: Mapping[str, Write] = {
    "string": _string, "bytes": _bytes, "int": _int, "long": _long, "double": struct.Struct("<d").pack,
}  # fmt: skip
