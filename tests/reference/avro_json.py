"""Events as plain JSON, the way Avro writes defaults: bytes as a character each (U+0000 to U+00FF), no union tags."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
from fastavro.validation import validate

from schemas.codec import HEADER_BYTES, SCHEMAS, decode
from schemas.events import EVENT_TYPES, Event

BY_NAME = {event_type.__name__: event_type for event_type in EVENT_TYPES}
_NUMBERS = re.compile(r"\[\s+(-?\d+(?:,\s+-?\d+)*)\s+\]")


def fields_of(event: Event) -> dict[str, Any]:
    """The event's fields in the schema's order."""
    return {field.name: _to_json(getattr(event, field.name)) for field in dataclasses.fields(event)}


def event_of(name: str, fields: Mapping[str, Any]) -> Event:
    """The event that `fields_of` gave, read by the working tree's schema.

    Raises ValidationError for a field that is missing, unknown or of another type: no default is filled in.
    """
    schema = SCHEMAS[BY_NAME[name]]
    record = to_avro(schema.parsed, fields)
    validate(record, schema.parsed, strict=True)
    body = BytesIO()
    fastavro.schemaless_writer(body, schema.parsed, record)
    return decode(schema.header[:HEADER_BYTES] + body.getvalue())


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
