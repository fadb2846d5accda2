"""The recorded run, docs/life-of-a-request.json: records of the log in the order in which they were written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventlog.record import Record
from schemas.catalog import published_schema
from schemas.events import Event
from schemas.topics import kind_of
from tests.reference.avro_json import BY_NAME, event_of, json_of, numbers_on_one_line
from tests.reference.schema_text import topic_name

ROOT = Path(__file__).resolve().parents[2]
WHOLE = ("stop", "length")  # finish reasons of answers that were delivered whole
_ORDER = {name: number for number, name in enumerate(BY_NAME)}
STORY_FILE = ROOT / "docs/life-of-a-request.json"


@dataclass(frozen=True, slots=True)
class Told:
    """One record of the run. fields: its event as plain JSON."""

    topic: str
    partition: int
    offset: int
    key: str
    headers: dict[str, str]
    name: str
    fields: dict[str, Any]

    @classmethod
    def of(cls, record: Record) -> Told:
        event = record.event()
        headers = {name: value.decode("latin-1") for name, value in record.headers}
        return cls(
            record.topic, record.partition, record.offset, (record.key or b"").decode(), headers,
            type(event).__name__, json_of(event),
        )  # fmt: skip

    @property
    def event(self) -> Event:
        return event_of(self.name, self.fields)

    @property
    def request_id(self) -> str | None:
        """None for an event that is of no request."""
        return self.fields.get("request_id")

    @property
    def at_us(self) -> int:
        return int(self.fields["at_us"])


def in_order(told: Told) -> tuple[int, int, int]:
    """By time; of one time, as a request meets them, and the event itself before its copies on other topics."""
    kind = kind_of(told.topic)
    assert kind is not None
    topics = list(published_schema(BY_NAME[told.name])["topics"])
    return told.at_us, _ORDER[told.name], topics.index(topic_name(kind))


@dataclass(frozen=True, slots=True)
class Story:
    """The run: one request that was answered, one of each other ending, and all that surrounds them."""

    told: tuple[Told, ...]

    @property
    def requests(self) -> tuple[tuple[Told, ...], ...]:
        """Each request's records, in the order of their times; requests in the order of their ids."""
        found: dict[str, list[Told]] = {}
        for told in sorted(self.told, key=in_order):
            if told.request_id is not None:
                found.setdefault(told.request_id, []).append(told)
        return tuple(tuple(found[request_id]) for request_id in sorted(found))

    @property
    def answered(self) -> tuple[Told, ...]:
        """The records of the request whose answer was delivered whole."""
        (request,) = [
            request for request in self.requests if any(told.fields.get("finish_reason") in WHOLE for told in request)
        ]
        return request

    def example(self, name: str) -> Told:
        """The record that stands for all events of this name: of the answered request, if it has one.

        Raises KeyError if the run has none.
        """
        for told in (*self.answered, *self.told):
            if told.name == name:
                return told
        raise KeyError(f"the recorded run has no {name}: python -m tests.reference --record")


def load(file: Path = STORY_FILE) -> Story:
    return Story(tuple(_told(entry) for entry in json.loads(file.read_text("utf-8"))["records"]))


def dump(told: Iterable[Told], about: str) -> str:
    """The file's text."""
    records = [
        {
            "topic": one.topic, "partition": one.partition, "offset": one.offset, "key": one.key,
            "headers": one.headers, one.name: one.fields,
        }
        for one in told
    ]  # fmt: skip
    return numbers_on_one_line(json.dumps({"about": about, "records": records}, indent=2, ensure_ascii=False)) + "\n"


def _told(entry: dict[str, Any]) -> Told:
    *_, name = entry
    return Told(
        entry["topic"], entry["partition"], entry["offset"], entry["key"], entry["headers"], name, entry[name]
    )  # fmt: skip
