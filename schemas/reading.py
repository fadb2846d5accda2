"""How the body of one writer's schema becomes an event of ours, whatever the bytes are.

The writer's schema is ours, a released one, or one that a schema registry gave. Avro's schema resolution fills what
an older writer did not know with defaults and drops what a newer one knows more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any

from fastavro import schemaless_reader
from fastavro.schema import parse_schema, to_parsing_canonical_form

from .bounds import MAX_EVENT_BYTES, SMALL_BYTES, Bounds, check_bounds
from .catalog import EVENT_TYPE_BY_NAME, AvroSchema
from .conversion import Check, Convert, from_avro_of, int_check_of, own_maps_of
from .errors import UndecodableEvent, UnknownEventType, UnusableSchema
from .events import Event
from .plain_schema import plain_name, plain_writer_schema, without_logical_types

_MAX_PROBLEM_CHARS = 300  # an Avro library's message may hold all of both schemas
_OPTIONS: dict[str, Any] = {}
_set = object.__setattr__
_new = object.__new__


Read = Callable[[bytes], Event]
"""The event behind the header. Raises UndecodableEvent."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads bodies that were written with one schema.

    reader: our schema, where the writer's is another one.
    convert, check: see conversion.py.
    bounds: what must be checked before a large body (any body, of a foreign schema) is read; None: nothing.
    """

    event_type: type[Event]
    writer: Any
    reader: Any
    convert: tuple[tuple[str, Convert], ...]
    check: Check | None
    bounds: Bounds | None

    def behind(self, header_bytes: int) -> Read:
        """The function that reads bodies behind a header of this size: the hot path, so its parts are at hand."""
        event_type, convert, check = self.event_type, self.convert, self.check
        read_data, writer, reader = _READ_DATA, self.writer, self.reader
        named = {"writer": _named_in(writer), "reader": _named_in(reader)}
        looked_at_bytes = 0 if self.bounds is not None and self.bounds.always else SMALL_BYTES

        def read(data: bytes) -> Event:
            if len(data) > looked_at_bytes:
                self._check_size(data, header_bytes)
            body = BytesIO(data)
            body.seek(header_bytes)
            try:
                record: Any = read_data(body, writer, named, reader, _OPTIONS)
                if check is not None:
                    check(record)
                for name, back in convert:
                    record[name] = back(record[name])
            except Exception as error:  # corrupt bytes surface as any of a dozen types
                problem = str(error)[:_MAX_PROBLEM_CHARS] or type(error).__name__
                raise UndecodableEvent(f"corrupt {event_type.__name__}: {problem}") from error
            if body.tell() != len(data):
                raise UndecodableEvent(f"{len(data) - body.tell()} bytes left over after a {event_type.__name__}")
            event = _new(event_type)
            _set(event, "__dict__", record)
            return event

        return read

    def _check_size(self, data: bytes, header_bytes: int) -> None:
        if len(data) > MAX_EVENT_BYTES:
            raise UndecodableEvent(f"{len(data)} bytes, more than the {MAX_EVENT_BYTES} that an event may have")
        if self.bounds is not None:
            check_bounds(data, header_bytes, self.bounds)


def _named_in(schema: Any) -> Any:
    named: dict[str, Any] = {}
    if schema is not None:
        parse_schema(schema, named)
    return named


def _read_data() -> Callable[..., Any]:
    """What reads a value of a parsed schema from a body.

    fastavro's schemaless_reader looks over both schemas again for each body. What it then calls is not public: where
    that is missing, or no longer does the same, the public function is as good and takes a tenth longer.
    """
    try:
        read: Callable[..., Any] = import_module("fastavro._read")._read_data
        if read(BytesIO(b"\4"), "Long", {"writer": {"Long": {"type": "long"}}, "reader": {}}, None, _OPTIONS) == 2:
            return read
    except Exception:  # whatever another version makes of it
        pass
    return lambda body, writer, named, reader, options: schemaless_reader(body, writer, reader)


def reader_for(writer: AvroSchema, ours: Mapping[type[Event], Any], *, foreign: bool) -> Reader:
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


_READ_DATA = _read_data()
