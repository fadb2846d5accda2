"""Avro single-object encoding: 0xC3 0x01, the schema's CRC-64-AVRO fingerprint, then the Avro body.

Any Avro library that has the .avsc files reads and writes the same bytes (Avro specification, "Single-object
encoding"). `encode` and `decode` are the hot path: schemas are parsed once at import, and a decoded record becomes
the event's __dict__ without a copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from typing import Any, cast

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from schemas.errors import UndecodableEvent, UnencodableEvent, UnknownSchema
from schemas.events import EVENT_TYPES, Event, Message, Route, RouteTarget

MARKER = b"\xc3\x01"
HEADER_BYTES = 10

_NESTED: dict[str, type[Any]] = {cls.__name__: cls for cls in (Message, Route, RouteTarget)}
_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class EventSchema:
    """One event's schema, ready to use.

    header: marker and fingerprint, the first 10 bytes of every encoded event of this type.
    avro: the schema as published, with logical types and docs.
    """

    event_type: type[Event]
    header: bytes
    avro: Mapping[str, Any]
    parsed: Any
    to_avro: tuple[tuple[str, _Convert], ...]
    from_avro: tuple[tuple[str, _Convert], ...]

    @property
    def fingerprint(self) -> str:
        """CRC-64-AVRO in header byte order, as hex."""
        return self.header[2:].hex()


def encode(event: Event) -> bytes:
    """The event as single-object encoded bytes. Raises UnencodableEvent when a field does not fit its schema."""
    schema = SCHEMAS[type(event)]
    record = event.__dict__
    if schema.to_avro:
        record = dict(record)
        for name, convert in schema.to_avro:
            record[name] = convert(record[name])
    out = BytesIO(schema.header)
    out.seek(HEADER_BYTES)
    try:
        fastavro.schemaless_writer(out, schema.parsed, record)
    except Exception as error:  # fastavro raises whatever the wrong value made it raise
        raise UnencodableEvent(f"{type(event).__name__} does not fit its schema: {error}") from error
    return out.getvalue()


def decode(data: bytes) -> Event:
    """The event in these bytes.

    Raises UndecodableEvent (no marker, truncated, corrupt, or bytes left over) or UnknownSchema.
    """
    header = data[:HEADER_BYTES]
    schema = _BY_HEADER.get(header)
    if schema is None:
        if len(header) < HEADER_BYTES or not header.startswith(MARKER):
            raise UndecodableEvent(f"no Avro single-object header in {len(data)} bytes that start {data[:4].hex()!r}")
        raise UnknownSchema(header[2:].hex())
    body = BytesIO(data)
    body.seek(HEADER_BYTES)
    try:
        record = cast(dict[str, Any], fastavro.schemaless_reader(body, schema.parsed, None))
        for name, convert in schema.from_avro:
            record[name] = convert(record[name])
    except Exception as error:  # corrupt bytes surface as any of a dozen types
        raise UndecodableEvent(f"corrupt {schema.event_type.__name__}: {str(error) or type(error).__name__}") from error
    if body.tell() != len(data):
        raise UndecodableEvent(f"{len(data) - body.tell()} bytes left over after a {schema.event_type.__name__}")
    event = object.__new__(schema.event_type)
    object.__setattr__(event, "__dict__", record)
    return event


def published_schema(event_type: type[Any]) -> Mapping[str, Any]:
    """The .avsc file of an event type, parsed as JSON."""
    text = resources.files("schemas").joinpath("avro", f"{event_type.__name__}.avsc").read_text("utf-8")
    return cast(Mapping[str, Any], json.loads(text))


def single_object_header(avro: Mapping[str, Any]) -> bytes:
    """Marker and fingerprint. fastavro's hex is already in the header's byte order (held against Avro for Java)."""
    return MARKER + bytes.fromhex(fingerprint(to_parsing_canonical_form(dict(avro)), "CRC-64-AVRO"))


def _without_logical_types(node: Any) -> Any:
    """Times stay integers in process: fastavro would build a datetime for each one."""
    if isinstance(node, dict):
        if "logicalType" in node:
            return node["type"]
        return {key: _without_logical_types(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_logical_types(value) for value in node]
    return node


def _converters(avro_type: Any) -> tuple[_Convert, _Convert] | None:
    """(to Avro, from Avro) for types whose Python form is not what fastavro wants or gives."""
    if isinstance(avro_type, dict) and avro_type["type"] == "record":
        cls = _NESTED[avro_type["name"].rpartition(".")[2]]
        inner = _field_converters(avro_type)

        def to_record(value: Any) -> dict[str, Any]:
            return {**vars(value), **{name: to(getattr(value, name)) for name, (to, _) in inner.items()}}

        def from_record(record: dict[str, Any]) -> Any:
            return cls(**{**record, **{name: back(record[name]) for name, (_, back) in inner.items()}})

        return to_record, from_record
    if isinstance(avro_type, dict) and avro_type["type"] == "array":
        item = _converters(avro_type["items"])
        if item is None:
            return list, tuple
        to_item, from_item = item
        return (lambda values: [to_item(v) for v in values]), (lambda values: tuple(from_item(v) for v in values))
    return None


def _field_converters(record: Mapping[str, Any]) -> dict[str, tuple[_Convert, _Convert]]:
    found = {field["name"]: _converters(field["type"]) for field in record["fields"]}
    return {name: pair for name, pair in found.items() if pair is not None}


def _load(event_type: type[Event]) -> EventSchema:
    avro = published_schema(event_type)
    converters = _field_converters(avro)
    return EventSchema(
        event_type=event_type,
        header=single_object_header(avro),
        avro=avro,
        parsed=parse_schema(_without_logical_types(avro), named_schemas={}),
        # fastavro writes tuples of plain values as they are
        to_avro=tuple((name, to) for name, (to, _) in converters.items() if to is not list),
        from_avro=tuple((name, back) for name, (_, back) in converters.items()),
    )


SCHEMAS: Mapping[type[Event], EventSchema] = {event_type: _load(event_type) for event_type in EVENT_TYPES}
_BY_HEADER: Mapping[bytes, EventSchema] = {schema.header: schema for schema in SCHEMAS.values()}
