"""Whether the defaults of a schema fit the types of their fields.

A reader's default fills what an older writer did not send, so a default that does not fit is found by the first reader
of an old event, or, in libraries that check it, makes the whole schema unusable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .avro_types import Array, Enum, Field, Fixed, Map, Primitive, Record, Schema, Type, Union, short_name, type_text

_BITS = {"int": 32, "long": 64}


def unfit_defaults(schema: Schema) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of every default that does not fit its field's type.

    Stricter than Avro 1.12 in one thing: the default of a union must fit its first branch, because libraries before
    1.12 refuse the whole schema otherwise.
    """
    for named in schema.named.values():
        for one in named.fields if isinstance(named, Record) else ():
            if one.default is not None and not _fits(one.default.value, one.type, schema):
                first = " (the first branch of it counts)" if isinstance(one.type, Union) else ""
                yield (
                    f"{short_name(named)}.{one.name}",
                    f"{json.dumps(one.default.value)} does not fit {type_text(one.type)}{first}",
                )


def _fits(value: Any, type_: Type, schema: Schema) -> bool:
    match schema.follow(type_):
        case Union(branches):
            return _fits(value, branches[0], schema)
        case Array(items=inner):
            return isinstance(value, list) and all(_fits(item, inner, schema) for item in value)
        case Map(values=inner):
            return isinstance(value, dict) and all(_fits(item, inner, schema) for item in value.values())
        case Enum(symbols=symbols):
            return value in symbols
        case Fixed(size=size):
            return _is_byte_text(value) and len(value) == size
        case Record(fields=fields):
            return isinstance(value, dict) and all(_fits_field(value, one, schema) for one in fields)
        case Primitive(name=name):
            return _fits_primitive(value, name)


def _fits_field(record: dict[str, Any], one: Field, schema: Schema) -> bool:
    return _fits(record[one.name], one.type, schema) if one.name in record else one.default is not None


def _fits_primitive(value: Any, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            limit = 1 << (_BITS[name] - 1)
            return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bytes":
            return _is_byte_text(value)
        case _:
            return isinstance(value, str)


def _is_byte_text(value: Any) -> bool:
    """Bytes stand in JSON as text whose code points are the bytes."""
    return isinstance(value, str) and all(ord(char) < 256 for char in value)
