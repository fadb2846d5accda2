"""docs/event-reference.md as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from schemas.catalog import published_schema, single_object_header
from schemas.codec import encode
from schemas.events import EVENT_TYPES, ControlEvent, DeadLetterEvent, Event, RequestEvent, TelemetryEvent
from schemas.topics import DAY_MS, TOPIC_KINDS, TopicKind
from tests.reference.avro_json import json_of, numbers_on_one_line
from tests.reference.picture import svg
from tests.reference.schema_text import fields_of, released, since_of, topic_name
from tests.reference.story import ROOT, WHOLE, Story, Told

PAGE = ROOT / "docs/event-reference.md"
PICTURE = ROOT / "docs/life-of-a-request.svg"
GROUPS = (
    ("The life of a request", RequestEvent),
    ("What exists", ControlEvent),
    ("How the parts are", TelemetryEvent),
    ("What nobody could read", DeadLetterEvent),
)
_SHOWN_CHARS = 160

_INTRO = """\
# Event reference

Every event, made by `make docs` from `schemas/avro/`, the topic table and a recorded run. How a service uses them: \
[events.md](events.md). What may change: [evolution.md](evolution.md).

![The life of one request: who wrote what, when, to which topic](life-of-a-request.svg)

The examples on this page are that run, [life-of-a-request.json](life-of-a-request.json): real records, in JSON as \
Avro writes defaults (a time is microseconds since the Unix epoch, bytes are a character each).
"""


def files(story: Story) -> dict[Path, str]:
    """What `make docs` writes: path to text."""
    return {PAGE: page(story), PICTURE: svg(story)}


def page(story: Story) -> str:
    """The whole page. Raises KeyError for an event of which the run has no example."""
    lines = [_INTRO, *_endings(story), *_wire(story), *_topics()]
    for title, union in GROUPS:
        lines += [f"## {title}", ""]
        for event_type in EVENT_TYPES:
            if event_type in get_args(union):
                lines += _event(event_type, story.example(event_type.__name__))
    return "\n".join(lines).rstrip() + "\n"


def _endings(story: Story) -> Iterator[str]:
    yield "Four requests, four endings; in milliseconds after the request was received, without the tokens between:\n"
    yield "| ending | |"
    yield "|---|---|"
    for request in story.requests:
        received_us = next(told.fields["received_at_us"] for told in request if told.name == "RequestSubmitted")
        first: dict[str, Told] = {}
        for told in request:
            first.setdefault(told.name, told)
        steps = (f"{name} {(told.at_us - received_us) / 1000:,.0f}" for name, told in first.items())
        yield f"| {ending_of(request)} | {' → '.join(steps)} |"
    yield ""


def ending_of(request: Sequence[Told]) -> str:
    """How the client would say it."""
    for told in request:
        if reason := told.fields.get("finish_reason"):
            return "answered" if reason in WHOLE else str(reason)
        if told.name in ("RequestRejected", "GenerationFailed"):
            how = "refused" if told.name == "RequestRejected" else "failed"
            return f"{how}: {told.fields['status']} {told.fields['code']}"
    raise ValueError("a request of the run has no end")


def _wire(story: Story) -> Iterator[str]:
    told = story.example("RequestSubmitted")
    value = encode(told.event)
    yield "## On the wire\n"
    yield (
        f"The first record of the picture: `{told.topic}`, partition {told.partition}, key `{told.key}`, "
        f"{len(value)} bytes that begin `{value[:16].hex(' ')}` (marker, fingerprint, body), and these headers "
        "([CloudEvents](https://cloudevents.io) and [W3C Trace Context](https://www.w3.org/TR/trace-context/)):\n"
    )
    yield "| header | |"
    yield "|---|---|"
    for name, text in told.headers.items():
        yield f"| `{name}` | `{text}` |"
    yield ""


def _topics() -> Iterator[str]:
    yield "## Topics\n"
    yield "| topic | key | written by | kept | events |"
    yield "|---|---|---|---|---|"
    for kind in TOPIC_KINDS:
        events = ", ".join(f"[{event.__name__}](#{event.__name__.lower()})" for event in kind.events)
        yield f"| `{topic_name(kind)}` | {kind.key} | {kind.written_by} | {_kept(kind)} | {events} |"
    yield ""


def _event(event_type: type[Event], example: Told) -> Iterator[str]:
    schema = published_schema(event_type)
    yield f"### {event_type.__name__}\n"
    yield f"{schema['doc']}\n"
    yield "| | |"
    yield "|---|---|"
    yield f"| written by | {schema['written_by']} |"
    kinds = {topic_name(kind): kind for kind in TOPIC_KINDS}
    for topic, key in schema["topics"].items():
        yield f"| topic | `{topic}`, key `{key}`, kept {_kept(kinds[topic])} |"
    yield f"| `ce_id` | made of {', '.join(f'`{name}`' for name in schema['identity'])} |"
    yield f"| first bytes | `{single_object_header(schema).hex(' ')}`{_older_headers(event_type)} |"
    yield f"| since | {since_of(event_type)} |"
    yield ""
    yield from _fields(event_type)
    fields = numbers_on_one_line(json.dumps(_shortened(json_of(example.event)), indent=2, ensure_ascii=False))
    yield f"`{example.topic}`, partition {example.partition}, offset {example.offset}, key `{example.key}`:\n"
    yield f"```json\n{fields}\n```\n"


def _older_headers(event_type: type[Event]) -> str:
    now = single_object_header(published_schema(event_type))
    older = {version: single_object_header(schema) for version, schema in released(event_type).items()}
    return "".join(f"; of {version}: `{was.hex(' ')}`" for version, was in older.items() if was != now)


def _fields(event_type: type[Event]) -> Iterator[str]:
    event_since = since_of(event_type)
    yield "| field | type | default | |"
    yield "|---|---|---|---|"
    for field in fields_of(event_type):
        default = "" if field.default is None else f"`{field.default}`"
        since = "" if field.since == event_since else f" Since {field.since}."
        yield f"| `{field.path}` | {field.type} | {default} | {_cell(field.doc)}{since} |"
    yield ""


def _kept(kind: TopicKind) -> str:
    if kind.retention_ms is None:
        return "the newest of each key"
    days = kind.retention_ms // DAY_MS
    return "1 day" if days == 1 else f"{days} days"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shortened(value: Any) -> Any:
    """Long texts cut for the page; the file has all of them."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARS:
        return f"{value[:_SHOWN_CHARS]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner) for inner in value]
    return value
