"""docs/event-reference.md is what the schemas and the recorded run say, and the run is a real one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from schemas.catalog import full_name, published_schema
from schemas.codec import decode, encode
from schemas.events import EVENT_TYPES, Event, TokensGenerated
from schemas.headers import event_id_of, headers_of, rfc3339
from schemas.ids import partition_of
from schemas.token_log import TokenLog
from schemas.topics import DEAD_LETTERS, REQUESTS, TOKENS, TOPIC_KINDS, kind_of
from tests.avro_vectors import NASTY
from tests.reference.avro_json import BY_NAME, event_of, json_of, with_union_tags
from tests.reference.page import PAGE, ending_of, files
from tests.reference.picture import svg
from tests.reference.schema_text import topic_name, type_of
from tests.reference.story import STORY_FILE, Story, Told, load

STORY = load()
TOLD = pytest.mark.parametrize(
    "told", STORY.told, ids=[f"{told.topic}-{told.partition}-{told.offset}" for told in STORY.told]
)


@pytest.mark.parametrize("file", files(STORY), ids=lambda file: file.name)
def test_the_page_and_its_picture_are_up_to_date(file: Path) -> None:
    assert file.read_text("utf-8") == files(STORY)[file], "run `make docs`"


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_every_event_is_on_the_page_with_a_recorded_example(event_type: type[Event]) -> None:
    assert f"\n### {event_type.__name__}\n" in PAGE.read_text("utf-8")
    assert type(STORY.example(event_type.__name__).event) is event_type


@TOLD
def test_a_record_of_the_run_is_one_of_todays_contract(told: Told) -> None:
    event = told.event
    assert decode(encode(event)) == event
    assert told.headers["ce_type"] == full_name(type(event))
    assert told.headers["ce_id"] == event_id_of(event)
    assert told.headers["ce_time"] == rfc3339(event.at_us)
    assert told.headers.keys() == {name for name, _ in headers_of(event, source="/test")}


@TOLD
def test_a_record_of_the_run_is_where_the_topic_table_puts_it(told: Told) -> None:
    kind = kind_of(told.topic)
    assert kind is not None
    assert BY_NAME[told.name] in kind.events
    key = published_schema(BY_NAME[told.name])["topics"][topic_name(kind)]
    parts = [part if part.startswith('"') else str(told.fields[part]) for part in key.split("/")]
    assert told.key == "/".join(parts).strip('"')
    if kind is TOKENS:
        assert told.partition == partition_of(told.fields["request_id"])


def test_the_run_tells_a_request_for_each_ending() -> None:
    endings = [ending_of(request).partition(":")[0] for request in STORY.requests]
    assert sorted(endings) == ["answered", "cancelled", "failed", "refused"]


def test_the_answered_request_passed_every_stage_in_order() -> None:
    assert list(dict.fromkeys(told.name for told in STORY.answered if told.name != "QuotaSettled")) == [
        "RequestSubmitted", "RequestValidated", "RequestAdmitted", "RequestRouted", "GenerationStarted",
        "TokensGenerated", "GenerationFinished", "ResponseDelivered",
    ]  # fmt: skip
    log = TokenLog()
    for told in STORY.answered:
        if kind_of(told.topic) is TOKENS:
            log.apply(told.event)  # type: ignore[arg-type]
    events = [told.event for told in STORY.answered]
    tokens = [event for event in events if isinstance(event, TokensGenerated)]
    assert log.text_chars == sum(len(event.text) for event in tokens) > 0
    assert log.terminal in events


def test_the_dead_letter_of_the_run_holds_the_message_that_was_tried_again() -> None:
    letter, requeued = STORY.example("DeadLettered"), STORY.example("DeadLetterRequeued")
    place = ("origin_topic", "origin_partition", "origin_offset")
    assert [letter.fields[name] for name in place] == [requeued.fields[name] for name in place]
    assert kind_of(letter.topic) is DEAD_LETTERS
    assert kind_of(letter.fields["origin_topic"]) is REQUESTS


def test_the_run_names_no_folder_of_the_machine_that_recorded_it() -> None:
    assert re.findall(r"/(?:root|home|tmp|work|Users)\b", STORY_FILE.read_text("utf-8")) == []


def test_the_picture_is_xml_and_names_each_record_of_the_answered_request() -> None:
    texts = {element.text for element in ElementTree.fromstring(svg(STORY)).iter()}
    for told in STORY.answered:
        assert told.topic in texts
        assert any(text is not None and text.startswith(told.name) for text in texts)


def test_the_page_names_every_topic() -> None:
    page = PAGE.read_text("utf-8")
    assert [kind.name for kind in TOPIC_KINDS if f"| `{topic_name(kind)}` |" not in page] == []


@pytest.mark.parametrize("event", NASTY, ids=lambda event: type(event).__name__)
def test_an_event_survives_json(event: Event) -> None:
    assert event_of(type(event).__name__, json_of(event)) == event


def test_a_field_that_is_new_takes_its_default() -> None:
    fields: dict[str, Any] = {**STORY.example("RequestSubmitted").fields}
    del fields["metadata"]
    assert json_of(event_of("RequestSubmitted", fields))["metadata"] == {}


@pytest.mark.parametrize(
    "change", [{"strange": 1}, {"tenant": None}, {"at_us": "now"}, {"messages": [{"role": "user"}]}]
)
def test_a_record_that_does_not_fit_its_schema_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="RequestSubmitted does not fit its schema"):
        event_of("RequestSubmitted", STORY.example("RequestSubmitted").fields | change)


def test_avros_own_json_names_the_branch_of_a_union() -> None:
    schema = {
        "type": "record",
        "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": ["null", "int"]}],
    }
    assert with_union_tags(schema, {"a": 1, "b": None}) == {"a": {"int": 1}, "b": None}
    with pytest.raises(ValueError, match="no event has the type"):
        with_union_tags({"type": "enum", "symbols": ["A"]}, "A")


@pytest.mark.parametrize(
    ("avro", "words"),
    [
        ("string", "string"),
        (["null", "string"], "string or null"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp-micros"),
        ({"type": "array", "items": {"type": "record", "name": "Route", "fields": []}}, "list of Route"),
        ({"type": "map", "values": "bytes"}, "map of bytes"),
    ],
)
def test_types_are_told_in_words(avro: Any, words: str) -> None:
    assert type_of(avro) == words


def test_a_type_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no words"):
        type_of({"type": "fixed", "name": "F", "size": 3})


def test_a_run_without_an_event_says_how_to_record_it() -> None:
    with pytest.raises(KeyError, match="--record"):
        Story(STORY.answered).example("DeadLettered")
