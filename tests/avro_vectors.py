"""Vectors of Avro's own library for Java: tests/contract/avro_vectors.json. `python -m tests.avro_vectors` writes them.

For every schema of the working tree and of every release its single-object header; for every event a real one, and for
some of them a nasty one, in single-object encoding.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.catalog import published_schema, released_schemas
from schemas.codec import SCHEMAS
from schemas.events import (
    EVENT_TYPES,
    DeadLettered,
    Event,
    Message,
    RequestSubmitted,
    Route,
    RouteTableChanged,
    RouteTarget,
    TokensGenerated,
)
from tests.java import Java, java_with_avro
from tests.reference.avro_json import event_of, json_of, numbers_on_one_line, with_union_tags
from tests.reference.story import load

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "tests/contract/avro_vectors.json"
PROGRAM = ROOT / "tests/contract/java/AvroVectors.java"
WORKING_TREE = "working tree"
NASTY: tuple[Event, ...] = (
    RequestSubmitted(
        request_id="", tenant="größe", at_us=-1, received_at_us=2**63 - 1, source="\0", model="你好 🌊",
        messages=(Message(role="system", content=""), Message(role="user", content="é\u0301\ufffd")),
        max_output_tokens=-(2**31), temperature=-0.0, top_p=5e-324, top_k=2**31 - 1, seed=-(2**63),
        stop=("", "\n\n", '"\\'), deadline_at_us=0, end_user="", metadata={"": "", "b": "2", "a": "1"},
    ),
    TokensGenerated(
        request_id="r", tenant="t", at_us=0, attempt=1, index=64, token_ids=(0, 63, 64, -64, -65, 2**31 - 1),
        text_offset_chars=8192, text="x" * 300,
    ),
    RouteTableChanged(
        at_us=1, revision=-(2**63),
        routes=(
            Route(alias="empty", targets=()),
            Route(alias="split", targets=(
                RouteTarget(model_version="a@v1", percent=0.1), RouteTarget(model_version="a@v2", percent=99.9),
            )),
        ),
    ),
    DeadLettered(
        at_us=1, consumer="c", reason="r", message="m", origin_topic="t", origin_partition=0, origin_offset=2**40,
        key=b"", value=bytes(range(256)), schema_id=0, headers={"z": b"\xff", "a": b""},
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vector:
    """An event, and the bytes that Java writes for it."""

    event: Event
    data: bytes


@dataclass(frozen=True, slots=True)
class Vectors:
    """headers: by release (or WORKING_TREE) and event name."""

    headers: dict[str, dict[str, bytes]]
    events: tuple[Vector, ...]


def asked_schemas() -> list[tuple[str, dict[str, Any]]]:
    """(release, schema) of all that there are."""
    ours = [(WORKING_TREE, dict(published_schema(event_type))) for event_type in EVENT_TYPES]
    return [*((release, dict(schema)) for release, schema in released_schemas()), *ours]


def asked_events() -> list[Event]:
    """A real event of each type, then the nasty ones."""
    story = load()
    return [*(story.example(event_type.__name__).event for event_type in EVENT_TYPES), *NASTY]


def ask_java(java: Java, events: Sequence[Event]) -> Vectors:
    """Have Java make the headers of all schemas, and the bytes of these events."""
    schemas = asked_schemas()
    questions = [{"schema": json.dumps(schema), "event": None} for _, schema in schemas]
    for event in events:
        schema = json.dumps(published_schema(type(event)))
        questions.append({"schema": schema, "event": in_avro_json(event)})
    lines = java.run(PROGRAM, given="\n".join(map(json.dumps, questions))).splitlines()
    answers = [tuple(map(bytes.fromhex, line.split(" "))) for line in lines]
    headers: dict[str, dict[str, bytes]] = {}
    for (release, schema_of), (header, _) in zip(schemas, answers, strict=False):
        headers.setdefault(release, {})[schema_of["name"]] = header
    data = (data for _, data in answers[len(schemas) :])
    return Vectors(headers, tuple(map(Vector, events, data)))


def in_avro_json(event: Event) -> str:
    """Avro's own JSON encoding."""
    return json.dumps(with_union_tags(SCHEMAS[type(event)].parsed, json_of(event)))


def load_vectors() -> Vectors:
    """Those of the file. Raises ValueError for an event that the working tree's schemas do not have."""
    content = json.loads(VECTORS.read_text("utf-8"))
    headers = {
        release: {name: bytes.fromhex(header) for name, header in found.items()}
        for release, found in content["headers"].items()
    }
    events = tuple(
        Vector(event_of(entry["event"], entry["fields"]), bytes.fromhex(entry["bytes"])) for entry in content["events"]
    )
    return Vectors(headers, events)


def text_of(vectors: Vectors) -> str:
    content = {
        "about": "Written by Avro for Java (tests/contract/java/AvroVectors.java): python -m tests.avro_vectors",
        "headers": {
            release: {name: header.hex() for name, header in found.items()}
            for release, found in vectors.headers.items()
        },
        "events": [
            {"event": type(vector.event).__name__, "fields": json_of(vector.event), "bytes": vector.data.hex()}
            for vector in vectors.events
        ],
    }
    return numbers_on_one_line(json.dumps(content, indent=1, ensure_ascii=False)) + "\n"


if __name__ == "__main__":
    VECTORS.write_text(text_of(ask_java(java_with_avro(), asked_events())), "utf-8")
