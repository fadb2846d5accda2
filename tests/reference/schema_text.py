"""What an .avsc file says, in words for a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from schemas.catalog import AvroSchema, published_schema
from schemas.events import Event
from schemas.releases import packaged_contract
from schemas.topics import TopicKind

NEXT_RELEASE = "the next release"


@dataclass(frozen=True, slots=True)
class Field:
    """path: the name, behind those of the lists that it is in. default: JSON; None where a value is required."""

    path: str
    type: str
    default: str | None
    doc: str
    since: str


def fields_of(event_type: type[Event]) -> list[Field]:
    """Every field of the event, nested records' behind the field that holds them."""
    schema = published_schema(event_type)
    since = {field["name"]: _since(event_type, field["name"]) for field in schema["fields"]}
    return [field for top in schema["fields"] for field in _walk(top, "", since[top["name"]])]


def since_of(event_type: type[Event]) -> str:
    """The first release that has the event."""
    return _since(event_type, None)


def released(event_type: type[Event]) -> dict[str, AvroSchema]:
    """The event's schema in each release that has it, oldest first."""
    contract = packaged_contract()
    releases = ((version, contract.release(version)) for version in contract.versions())
    return {
        version: json.loads(files[event_type.__name__])
        for version, files in releases
        if event_type.__name__ in files
    }  # fmt: skip


def topic_name(kind: TopicKind) -> str:
    """`work.<deployment>.<tenant>`, as the .avsc files write it."""
    return ".".join((kind.name, *(f"<{part}>" for part in kind.per)))


def type_of(avro: Any) -> str:
    """An Avro type as people say it: `string or null`, `list of int`, `timestamp-micros`."""
    match avro:
        case str():
            return avro
        case ["null", other]:
            return f"{type_of(other)} or null"
        case {"logicalType": logical}:
            return str(logical)
        case {"type": "array", "items": items}:
            return f"list of {type_of(items)}"
        case {"type": "map", "values": values}:
            return f"map of {type_of(values)}"
        case {"type": "record", "name": name}:
            return str(name)
    raise ValueError(f"the reference has no words for the Avro type {avro}")


def _since(event_type: type[Event], field: str | None) -> str:
    for version, schema in released(event_type).items():
        if field is None or any(known["name"] == field for known in schema["fields"]):
            return version
    return NEXT_RELEASE


def _walk(field: dict[str, Any], before: str, since: str) -> Iterator[Field]:
    default = json.dumps(field["default"]) if "default" in field else None
    yield Field(before + field["name"], type_of(field["type"]), default, field["doc"], since)
    record = field["type"]["items"] if isinstance(field["type"], dict) and "items" in field["type"] else None
    if isinstance(record, dict) and record["type"] == "record":
        for inner in record["fields"]:
            yield from _walk(inner, f"{before}{field['name']}[].", since)
