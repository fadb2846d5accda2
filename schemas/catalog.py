"""The published schemas: every event's .avsc file, of the working tree and of every release."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, cast

from fastavro.schema import fingerprint, to_parsing_canonical_form

from .errors import UnusableSchema
from .events import EVENT_TYPES

NAMESPACE = "headrace.v1"
MARKER = b"\xc3\x01"

AvroSchema = Mapping[str, Any]


def published_schema(event_type: type[Any]) -> AvroSchema:
    """The .avsc file of an event type, parsed as JSON."""
    text = resources.files(__package__).joinpath("avro", f"{event_type.__name__}.avsc").read_text("utf-8")
    return cast(AvroSchema, json.loads(text))


def released_schemas() -> Iterator[tuple[str, AvroSchema]]:
    """(release, schema) of every event of every release, as they were published."""
    for release in sorted(resources.files(__package__).joinpath("released").iterdir(), key=lambda path: path.name):
        if release.is_dir():
            for path in sorted(release.iterdir(), key=lambda path: path.name):
                yield release.name, cast(AvroSchema, json.loads(path.read_text("utf-8")))


def parsed_schema(text: str | bytes) -> AvroSchema:
    """A schema from its JSON text, whoever wrote it. Raises UnusableSchema."""
    try:
        schema = json.loads(text)
    except RecursionError:
        raise UnusableSchema("the writer's schema is nested too deep") from None
    except ValueError as error:
        raise UnusableSchema(f"the writer's schema is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise UnusableSchema("the writer's schema is no record")
    return schema


def full_name(event_type: type[Any]) -> str:
    """`headrace.v1.TokensGenerated`: the record's name, the header ce_type, and the subject in a schema registry."""
    return f"{NAMESPACE}.{event_type.__name__}"


def avro_fingerprint(avro: AvroSchema) -> str:
    """CRC-64-AVRO of the parsing canonical form, as hex in the single-object header's byte order.

    fastavro's hex is already in that order (held against Avro for Java).
    """
    return fingerprint(to_parsing_canonical_form(dict(avro)), "CRC-64-AVRO")


def single_object_header(avro: AvroSchema) -> bytes:
    """Marker and fingerprint: what stands before the body of every event of this schema."""
    return MARKER + bytes.fromhex(avro_fingerprint(avro))


EVENT_TYPE_BY_NAME = {full_name(event_type): event_type for event_type in EVENT_TYPES}
