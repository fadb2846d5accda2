"""Events to bytes and back, in either of two framings.

- Avro single-object encoding: 0xC3 0x01, the schema's CRC-64-AVRO fingerprint, the Avro body (Avro specification,
  "Single-object encoding"). Any Avro library that has the .avsc files reads and writes it.
- Confluent framing: 0x00, the schema's id in a schema registry as four bytes (big-endian), the Avro body.

A codec writes one of them and reads both, told apart by the first bytes. What it reads is one look-up of the header,
so writers of every release, and of schemas that a registry gave, cost no more than our own. `encode` and `decode` are
the hot path: schemas are parsed once, and a decoded record becomes the event's __dict__ without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastavro.schema import parse_schema

from .bounds import MAX_EVENT_BYTES, SMALL_BYTES, Bounds, check_bounds
from .catalog import (
    MARKER,
    AvroSchema,
    avro_fingerprint,
    full_name,
    published_schema,
    released_schemas,
    single_object_header,
)
from .errors import (
    ContractError,
    UndecodableEvent,
    UnencodableEvent,
    UnknownEventType,
    UnknownSchema,
    UnusableSchema,
)
from .events import EVENT_TYPES, Event, SchemaPublished, SchemaRegistered
from .plain_schema import plain_writer_schema, without_logical_types
from .reading import Read, Reader, reader_for
from .writing import Write, record_writer

HEADER_BYTES = 10
CONFLUENT_HEADER_BYTES = 5
CONFLUENT_MAGIC = b"\0"
_SCHEMA_IDS = 1 << 31  # registries count in Java's int

Framing = Literal["single-object", "confluent"]

Lookup = Callable[[int], AvroSchema]
"""Asks for the schema behind an id, and may block. Raises ContractError: UnknownSchema if there is none,
SchemaRegistryUnavailable if nobody can be asked, UnusableSchema if it is none that can be read."""


@dataclass(frozen=True, slots=True)
class EventSchema:
    """One event's schema, ready to write with.

    header: marker and fingerprint, the first 10 bytes of every event of this type in single-object encoding.
    avro: the schema as published, with logical types and docs.
    """

    event_type: type[Event]
    header: bytes
    avro: AvroSchema
    parsed: Any
    write: Write
    bounds: Bounds | None

    @property
    def fingerprint(self) -> str:
        """CRC-64-AVRO in header byte order, as hex."""
        return self.header[2:].hex()


class Codec:
    """Writes one framing, reads both. Several threads may use one; what it learns is there for all.

    framing: what is written. In Confluent framing an event can be written once its schema id is known (`learn_ours`);
        SchemaPublished and SchemaRegistered, from which readers learn, are always in single-object encoding.
    lookup: asked for a schema id that comes up in a header and is not known; once, if it knows the schema. It alone
        decides how long a thread waits for it: threads that meet known ids go on meanwhile. None: nobody is asked.
    """

    def __init__(self, framing: Framing = "single-object", *, lookup: Lookup | None = None) -> None:
        self.framing = framing
        self._lookup = lookup
        self._readers: dict[bytes, Read] = dict(_RELEASED_READERS)
        self._foreign: dict[bytes, ContractError] = {}  # ids whose schemas can't be read: asked for once
        self._headers = {
            event_type: schema.header
            for event_type, schema in SCHEMAS.items()
            if framing == "single-object" or event_type in _ALWAYS_SINGLE_OBJECT
        }

    def encode(self, event: Event) -> bytes:
        """The event as framed bytes. Raises UnencodableEvent when it does not fit its schema, or is too large."""
        event_type = type(event)
        schema = SCHEMAS[event_type]
        header = self._headers.get(event_type)
        if header is None:
            raise UnencodableEvent(
                f"no schema id is known for {full_name(event_type)}: run `headrace schemas register`, which asks the "
                "schema registry for it and writes it to control.schemas"
            )
        try:
            data = header + schema.write(event.__dict__)
        except ValueError as error:
            raise UnencodableEvent(f"{event_type.__name__} does not fit its schema: {error}") from error
        if len(data) > SMALL_BYTES:
            _check_readable(data, len(header), schema)
        return data

    def decode(self, data: bytes) -> Event:
        """The event in these bytes.

        Raises UndecodableEvent (no header, truncated, corrupt, too large, or bytes left over), UnknownSchema, and
        what the look-up of a schema id raises.
        """
        return (self._readers.get(data[:HEADER_BYTES]) or self._reader_of(data))(data)

    def learn(self, schema_id: int, avro: AvroSchema) -> None:
        """From now on this schema is known by its id in the schema registry.

        Raises UnknownEventType and UnusableSchema; decoding such an event raises the same.
        """
        header = confluent_header(schema_id)
        try:
            reader = reader_for(avro, _OURS, foreign=True)
        except ContractError as error:
            if isinstance(error, UnknownSchema):
                error.schema_id = schema_id
            self._foreign[header] = error
            raise
        self._readers[header] = reader.behind(CONFLUENT_HEADER_BYTES)

    def learn_published(self, fingerprint: str, avro: AvroSchema) -> None:
        """From now on this schema is known by its fingerprint.

        fingerprint: as its publisher says; of one of ours, or of a release, there is nothing to learn.

        Raises UnknownEventType, which decoding such an event raises too, and UnusableSchema.
        """
        if fingerprint in _READER_BY_FINGERPRINT:
            return
        try:
            reader = reader_for(avro, _OURS, foreign=True)
        except UnknownEventType as error:
            header = _header_of_foreign(avro)
            error.fingerprint = header[2:].hex()  # for the dead letters of such events
            self._foreign[header] = error
            raise
        self._readers.setdefault(_header_of_foreign(avro), reader.behind(HEADER_BYTES))

    def learn_ours(self, schema_id: int, fingerprint: str) -> bool:
        """The same for a schema of ours or of a release, known by its fingerprint; False for any other.

        With Confluent framing, events of this very schema are written with this id from now on. Raises UnusableSchema
        for an id that no registry gives.
        """
        known = _READER_BY_FINGERPRINT.get(fingerprint)
        if known is None:
            return False
        self._readers[confluent_header(schema_id)] = known.behind(CONFLUENT_HEADER_BYTES)
        is_current = fingerprint == SCHEMAS[known.event_type].fingerprint
        if self.framing == "confluent" and is_current and known.event_type not in _ALWAYS_SINGLE_OBJECT:
            self._headers[known.event_type] = confluent_header(schema_id)
        return True

    def missing_ids(self) -> list[str]:
        """Full names of events that can't be written yet."""
        return [full_name(event_type) for event_type in EVENT_TYPES if event_type not in self._headers]

    def _reader_of(self, data: bytes) -> Read:
        """The reader for a header that is not ten bytes of single-object encoding."""
        if (schema_id := schema_id_in(data)) is not None:
            header = data[:CONFLUENT_HEADER_BYTES]
            return self._readers.get(header) or self._look_up(header, schema_id)
        if data.startswith(MARKER) and len(data) >= HEADER_BYTES:
            if (error := self._foreign.get(data[:HEADER_BYTES])) is not None:
                raise error.with_traceback(None)
            fingerprint = data[2:HEADER_BYTES].hex()
            raise UnknownSchema(
                f"no known event has the schema fingerprint {fingerprint}", fingerprint=fingerprint
            )  # fmt: skip
        raise UndecodableEvent(
            f"neither an Avro single-object header nor a Confluent one in {len(data)} bytes that start "
            f"{data[:4].hex()!r}"
        )

    def _look_up(self, header: bytes, schema_id: int) -> Read:
        if (error := self._foreign.get(header)) is not None:
            raise error.with_traceback(None)  # else it grows each time
        if self._lookup is None:
            raise UnknownSchema(f"no schema is known by the id {schema_id}", schema_id=schema_id)
        self.learn(schema_id, self._lookup(schema_id))
        return self._readers[header]


def confluent_header(schema_id: int) -> bytes:
    """What stands before a body in Confluent framing. Raises UnusableSchema for what is no schema id."""
    if not 0 <= schema_id < _SCHEMA_IDS:
        raise UnusableSchema(f"{schema_id} is no schema id")
    return CONFLUENT_MAGIC + schema_id.to_bytes(4, "big")


def schema_id_in(data: bytes) -> int | None:
    """The schema id in a Confluent header; None where there is none, or a number that no registry gives."""
    if not data.startswith(CONFLUENT_MAGIC) or len(data) < CONFLUENT_HEADER_BYTES:
        return None
    schema_id = int.from_bytes(data[1:CONFLUENT_HEADER_BYTES], "big")
    return schema_id if schema_id < _SCHEMA_IDS else None


def _header_of_foreign(avro: AvroSchema) -> bytes:
    """The header of its events, for a schema that may be anything. Raises UnusableSchema."""
    try:
        return single_object_header(plain_writer_schema(avro))
    except UnusableSchema:
        raise
    except Exception as error:  # whatever the wrong schema made the library raise
        raise UnusableSchema(f"the published schema has no fingerprint: {str(error)[:300]}") from error


def _check_readable(data: bytes, start: int, schema: EventSchema) -> None:
    """What no reader takes must not be written: its writer would wait for an answer to it."""
    name = schema.event_type.__name__
    if len(data) > MAX_EVENT_BYTES:
        raise UnencodableEvent(f"{name} takes {len(data)} bytes, more than the {MAX_EVENT_BYTES} that readers take")
    if schema.bounds is not None:
        try:
            check_bounds(data, start, schema.bounds)
        except UndecodableEvent as error:
            raise UnencodableEvent(f"{name} is more than readers take: {error}") from error


def _load(event_type: type[Event]) -> EventSchema:
    avro = published_schema(event_type)
    parsed: Any = parse_schema(without_logical_types(avro), named_schemas={})
    return EventSchema(
        event_type=event_type,
        header=single_object_header(avro),
        avro=avro,
        parsed=parsed,
        write=record_writer(parsed),
        bounds=Bounds.of(parsed, always=False),
    )


def _released_readers() -> dict[str, Reader]:
    """Of every schema of every release and of ours, by fingerprint."""
    avros = [*(avro for _, avro in released_schemas()), *(schema.avro for schema in SCHEMAS.values())]
    return {avro_fingerprint(avro): reader_for(avro, _OURS, foreign=False) for avro in avros}


_ALWAYS_SINGLE_OBJECT = (SchemaPublished, SchemaRegistered)
SCHEMAS: Mapping[type[Event], EventSchema] = {event_type: _load(event_type) for event_type in EVENT_TYPES}
_OURS: Mapping[type[Event], Any] = {event_type: schema.parsed for event_type, schema in SCHEMAS.items()}
_READER_BY_FINGERPRINT: Mapping[str, Reader] = _released_readers()
_RELEASED_READERS: Mapping[bytes, Read] = {
    MARKER + bytes.fromhex(fingerprint): reader.behind(HEADER_BYTES)
    for fingerprint, reader in _READER_BY_FINGERPRINT.items()
}

SINGLE_OBJECT = Codec()
encode = SINGLE_OBJECT.encode
decode = SINGLE_OBJECT.decode

__all__ = [
    "CONFLUENT_HEADER_BYTES", "HEADER_BYTES", "SCHEMAS", "SINGLE_OBJECT", "Codec", "EventSchema", "Framing", "Lookup",
    "avro_fingerprint", "confluent_header", "decode", "encode", "full_name", "published_schema",
    "schema_id_in", "single_object_header",
]  # fmt: skip
