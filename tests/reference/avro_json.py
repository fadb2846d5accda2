"""Events as plain JSON, the way Avro writes defaults: bytes as a character each (U+0000 to U+00FF), no union tags."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro

from schemas.codec import SCHEMAS, decode
from schemas.events import EVENT_TYPES, Event

BY_NAME = {event_type.__name__: event_type for event_type in EVENT_TYPES}
_NUMBERS = re.compile(r"\[\s+(-?\d+(?:,\s+-?\d+)*)\s+\]")


def json_of(event: Event) -> dict[str, Any]:
    """The event's fields in the schema's order."""
    return {field.name: _to_json(getattr(event, field.name)) for field in dataclasses.fields(event)}


def event_of(name: str, fields: Mapping[str, Any]) -> Event:
    """The event that `json_of` gave, as the working tree's schema has it: fields that are new take their defaults.

    Raises ValueError for a field that has no default and is missing, is unknown, or of another type.
    """
    schema = SCHEMAS[BY_NAME[name]]
    body = BytesIO()
    try:
        fastavro.schemaless_writer(body, schema.parsed, to_avro(schema.parsed, fields), strict_allow_default=True)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} does not fit its schema: {error}") from error
    return decode(schema.header + body.getvalue())


def to_avro(schema: Any, value: Any) -> Any:
    """JSON as fastavro takes it: strings where the schema has bytes become bytes."""
    match schema:
        case "bytes":
            return value.encode("latin-1")
        case [_, other]:
            return None if value is None else to_avro(other, value)
        case {"type": "record", "fields": fields}:
            known = {field["name"]: field["type"] for field in fields}
            return {name: to_avro(known[name], inner) if name in known else inner for name, inner in value.items()}
        case {"type": "array", "items": items}:
            return [to_avro(items, item) for item in value]
        case {"type": "map", "values": values}:
            return {name: to_avro(values, inner) for name, inner in value.items()}
        case {"type": str() as plain}:
            return to_avro(plain, value)
        case _:
            return value


def with_union_tags(schema: Any, value: Any) -> Any:
    """Plain JSON as Avro's own JSON encoding: a value of a union names its branch."""
    match schema:
        case [_, str(branch)]:
            return None if value is None else {branch: value}
        case {"type": "record", "fields": fields}:
            return {field["name"]: with_union_tags(field["type"], value[field["name"]]) for field in fields}
        case {"type": "array", "items": items}:
            return [with_union_tags(items, item) for item in value]
        case {"type": "map", "values": values}:
            return {name: with_union_tags(values, inner) for name, inner in value.items()}
        case str():
            return value
    raise ValueError(f"no event has the type {schema}")


def numbers_on_one_line(text: str) -> str:
    """Indented JSON whose lists of numbers take one line."""
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _to_json(inner) for name, inner in value.items()}
    return value
