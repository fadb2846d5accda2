"""What the .avsc files say beside their fields is what the topic table says, and their names carry units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from schemas.catalog import published_schema
from schemas.events import EVENT_TYPES, Event, RequestEvent
from schemas.topics import TOPIC_KINDS, TopicKind
from tests.reference.schema_text import topic_name

UNITS = (
    "_at_us", "_us", "_ms", "_bytes", "_chars", "_tokens", "_requests", "_per_minute", "_per_second",
    "_sockets", "_responses", "_events", "_clients",
)  # fmt: skip
WITHOUT_UNIT = {
    # places and numbers of things
    "attempt", "index", "origin_partition", "origin_offset", "requeued_offset", "resumed_after", "revision",
    "schema_id", "seed", "status", "token_id", "version",
    # what is counted is the name
    "events", "steps", "batch_size", "top_logprobs",
    # ratios and degrees
    "bias", "frequency_penalty", "logprob", "min_p", "percent", "presence_penalty", "priority", "repetition_penalty",
    "temperature", "top_k", "top_p", "weight",
}  # fmt: skip


def every_event() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)


def kinds_of(event_type: type[Event]) -> list[TopicKind]:
    return [kind for kind in TOPIC_KINDS if event_type in kind.events]


def alternatives(words: str) -> set[str]:
    """`gateway, or another service (why)` as a set of two."""
    parts = re.split(r",|;|\bor\b", re.sub(r"\(.*?\)", "", words))
    return {part.strip() for part in parts} - {""}


def records(avro: Any) -> Iterator[Mapping[str, Any]]:
    """A schema's record and those in it."""
    if isinstance(avro, list):
        for branch in avro:
            yield from records(branch)
    elif isinstance(avro, dict):
        if avro["type"] == "record":
            yield avro
        for inner in (avro.get("items"), avro.get("values"), *(field["type"] for field in avro.get("fields", ()))):
            yield from records(inner)


@every_event()
def test_the_topics_and_keys_of_an_event_are_those_of_the_topic_table(event_type: type[Event]) -> None:
    said = published_schema(event_type)["topics"]
    table = {topic_name(kind): alternatives(kind.key) for kind in kinds_of(event_type)}
    assert said.keys() == table.keys()
    assert {topic: key for topic, key in said.items() if key not in table[topic]} == {}


@every_event()
def test_the_writers_of_an_event_are_writers_of_its_topics(event_type: type[Event]) -> None:
    writers = alternatives(published_schema(event_type)["written_by"])
    of_topics = [alternatives(kind.written_by) & writers for kind in kinds_of(event_type)]
    assert all(of_topics), "nobody who writes the event writes to one of its topics"
    assert set().union(*of_topics) == writers


@pytest.mark.parametrize("kind", TOPIC_KINDS, ids=lambda kind: kind.name)
def test_each_writer_of_a_topic_writes_one_of_its_events(kind: TopicKind) -> None:
    of_events = [alternatives(published_schema(event_type)["written_by"]) for event_type in kind.events]
    assert alternatives(kind.written_by) <= set().union(*of_events)


@every_event()
def test_an_event_is_identified_by_fields_that_are_always_there(event_type: type[Event]) -> None:
    schema = published_schema(event_type)
    types = {field["name"]: field["type"] for field in schema["fields"]}
    assert schema["identity"]
    assert [name for name in schema["identity"] if isinstance(types[name], list)] == []
    assert (schema["identity"][0] == "request_id") == (event_type in RequestEvent.__args__)


@every_event()
def test_every_record_and_field_is_told_in_whole_sentences(event_type: type[Event]) -> None:
    for record in records(published_schema(event_type)):
        docs = {record["name"]: record["doc"], **{field["name"]: field["doc"] for field in record["fields"]}}
        assert {name: doc for name, doc in docs.items() if not doc.endswith((".", ".)"))} == {}


@every_event()
def test_every_number_has_its_unit_in_its_name(event_type: type[Event]) -> None:
    for record in records(published_schema(event_type)):
        for field in record["fields"]:
            avro = field["type"][1] if isinstance(field["type"], list) else field["type"]
            if (isinstance(avro, dict) and "logicalType" in avro) or avro in ("int", "long", "double"):
                name = field["name"]
                assert name.endswith(UNITS) or name in {"at_us", *WITHOUT_UNIT}, f"{record['name']}.{name}"
