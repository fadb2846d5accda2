"""How the body of one writer's schema becomes an event of ours, whatever the bytes are.

The writer's schema is ours, a released one, or one that a schema registry gave. Avro's schema resolution fills what
an older writer did not know with defaults and drops what a newer one knows more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import parse_schema

from . import events
from .bounds import Bounds, check_bounds
from .catalog import EVENT_TYPE_BY_NAME, AvroSchema, avro_fingerprint
from .errors import UndecodableEvent, UnknownEventType, UnusableSchema
from .events import Event

Convert = Callable[[Any], Any]
_SMALL_BYTES = 64 * 1024  # no event of ours takes more than 200 times as much memory as it has bytes
_set = object.__setattr__
_new = object.__new__


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads bodies that were written with one schema.

    reader: our schema, where the writer's is another one.
    bounds: what must be checked before a large body (any body, of a foreign schema) is read; None: nothing.
    """

    event_type: type[Event]
    header_bytes: int
    writer: Any
    reader: Any
    convert: tuple[tuple[str, Convert], ...]
    bounds: Bounds | None

    def read(self, data: bytes) -> Event:
        """The event behind the header. Raises UndecodableEvent."""
        if self.bounds is not None and (self.bounds.always or len(data) > _SMALL_BYTES):
            check_bounds(data, self.header_bytes, self.bounds)
        body = BytesIO(data)
        body.seek(self.header_bytes)
        try:
            record: Any = fastavro.schemaless_reader(body, self.writer, self.reader)
            for name, convert in self.convert:
                record[name] = convert(record[name])
        except Exception as error:  # corrupt bytes surface as any of a dozen types
            problem = str(error) or type(error).__name__
            raise UndecodableEvent(f"corrupt {self.event_type.__name__}: {problem}") from error
        if body.tell() != len(data):
            raise UndecodableEvent(f"{len(data) - body.tell()} bytes left over after a {self.event_type.__name__}")
        event = _new(self.event_type)
        _set(event, "__dict__", record)
        return event


def reader_for(writer: AvroSchema, ours: Mapping[type[Event], Any], *, header_bytes: int, foreign: bool) -> Reader:
    """The reader of bodies written with this schema.

    ours: our own parsed schemas, without logical types.
    foreign: the schema comes from outside, so it may be hostile.

    Raises UnknownEventType if it is no event of ours, UnusableSchema if it can't be read as one.
    """
    name = _full_name_of(writer)
    event_type = EVENT_TYPE_BY_NAME.get(name)
    if event_type is None:
        raise UnknownEventType(f"{name} is no event that is known here")
    try:
        plain = without_logical_types(writer)
        bounds = Bounds.of(plain, always=foreign)
        parsed = parse_schema(plain, named_schemas={})
    except UnusableSchema:
        raise
    except Exception as error:  # whatever the wrong schema made the parser raise
        raise UnusableSchema(f"the writer's schema of {name} can't be read: {error}") from error
    reader = ours[event_type]
    return Reader(
        event_type=event_type,
        header_bytes=header_bytes,
        writer=parsed,
        # Same canonical form: same bytes, nothing to resolve.
        reader=None if avro_fingerprint(plain) == avro_fingerprint(reader) else reader,
        convert=tuple((field, back) for field, (_, back) in converters_of(reader).items()),
        bounds=bounds,
    )


def _full_name_of(schema: AvroSchema) -> str:
    if not isinstance(schema, Mapping) or schema.get("type") not in ("record", "error"):
        raise UnusableSchema("the writer's schema is no record")
    name = str(schema.get("name", ""))
    return name if "." in name else f"{schema.get('namespace', '')}.{name}"


def without_logical_types(node: Any, depth: int = 0) -> Any:
    """Times stay integers in process: fastavro would build a datetime for each one."""
    if depth > 64:
        raise UnusableSchema("the writer's schema is nested more than 64 deep")
    if isinstance(node, dict):
        if "logicalType" in node:
            return without_logical_types(node["type"], depth + 1)
        return {key: without_logical_types(value, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [without_logical_types(value, depth + 1) for value in node]
    return node


def converters_of(record: Mapping[str, Any]) -> dict[str, tuple[Convert, Convert]]:
    """(to Avro, from Avro) of each field whose Python form is not what fastavro wants or gives."""
    found = {field["name"]: _converters(field["type"]) for field in record["fields"]}
    return {name: pair for name, pair in found.items() if pair is not None}


def _converters(avro_type: Any) -> tuple[Convert, Convert] | None:
    if isinstance(avro_type, dict) and avro_type["type"] == "record":
        cls = getattr(events, avro_type["name"].rpartition(".")[2])
        inner = converters_of(avro_type)

        def to_record(value: Any) -> dict[str, Any]:
            return {**vars(value), **{name: to(getattr(value, name)) for name, (to, _) in inner.items()}}

        def from_record(record: dict[str, Any]) -> Any:
            for name, (_, back) in inner.items():
                record[name] = back(record[name])
            value = _new(cls)
            _set(value, "__dict__", record)
            return value

        return to_record, from_record
    if isinstance(avro_type, dict) and avro_type["type"] == "array":
        item = _converters(avro_type["items"])
        if item is None:
            return list, tuple
        to_item, from_item = item
        return (lambda values: [to_item(v) for v in values]), (lambda values: tuple(map(from_item, values)))
    return None
