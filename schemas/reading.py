"""How the body of one writer's schema becomes an event of ours, whatever the bytes are.

The writer's schema is ours, a released one, or one that a schema registry gave. Avro's schema resolution fills what
an older writer did not know with defaults and drops what a newer one knows more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import parse_schema, to_parsing_canonical_form

from .bounds import SMALL_BYTES, Bounds, check_bounds
from .catalog import EVENT_TYPE_BY_NAME, AvroSchema
from .conversion import Check, Convert, from_avro_of, int_check_of, own_maps_of
from .errors import UndecodableEvent, UnknownEventType, UnusableSchema
from .events import Event
from .plain_schema import plain_name, plain_writer_schema, without_logical_types

_MAX_PROBLEM_CHARS = 300  # an Avro library's message may hold all of both schemas
_set = object.__setattr__
_new = object.__new__


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads bodies that were written with one schema.

    reader: our schema, where the writer's is another one.
    convert, check: see conversion.py.
    bounds: what must be checked before a large body (any body, of a foreign schema) is read; None: nothing.
    """

    event_type: type[Event]
    header_bytes: int
    writer: Any
    reader: Any
    convert: tuple[tuple[str, Convert], ...]
    check: Check
    bounds: Bounds | None

    def read(self, data: bytes) -> Event:
        """The event behind the header. Raises UndecodableEvent."""
        if self.bounds is not None and (self.bounds.always or len(data) > SMALL_BYTES):
            check_bounds(data, self.header_bytes, self.bounds)
        body = BytesIO(data)
        body.seek(self.header_bytes)
        try:
            record: Any = fastavro.schemaless_reader(body, self.writer, self.reader)
            self.check(record)
            for name, convert in self.convert:
                record[name] = convert(record[name])
        except Exception as error:  # corrupt bytes surface as any of a dozen types
            problem = str(error)[:_MAX_PROBLEM_CHARS] or type(error).__name__
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
        parsed = parse_schema(
            plain_writer_schema(writer) if foreign else without_logical_types(writer), named_schemas={}
        )
        bounds = Bounds.of(parsed, always=foreign)
        reader = None if _same_bytes(parsed, ours[event_type]) else ours[event_type]
    except UnusableSchema:
        raise
    except Exception as error:  # whatever the wrong schema made the parser raise
        problem = str(error)[:_MAX_PROBLEM_CHARS]
        raise UnusableSchema(f"the writer's schema of {name} can't be read: {problem}") from error
    return Reader(
        event_type=event_type,
        header_bytes=header_bytes,
        writer=parsed,
        reader=reader,
        convert=from_avro_of(ours[event_type]) + (own_maps_of(ours[event_type]) if reader else ()),
        check=int_check_of(ours[event_type]),
        bounds=bounds,
    )


def _same_bytes(writer: Any, ours: Any) -> bool:
    """Whether there is nothing to resolve. The canonical forms tell; their fingerprints can be forged."""
    return bool(to_parsing_canonical_form(writer) == to_parsing_canonical_form(ours))


def _full_name_of(schema: AvroSchema) -> str:
    if not isinstance(schema, Mapping) or schema.get("type") not in ("record", "error"):
        raise UnusableSchema("the writer's schema is no record")
    name = plain_name(schema.get("name"))
    return name if "." in name else f"{plain_name(schema.get('namespace'))}.{name}"
