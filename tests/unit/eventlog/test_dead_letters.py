"""What a dead letter keeps, and when there can be none."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventlog.dead_letters import dead_letter, send_dead_letter
from eventlog.errors import RecordRefused
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.record import Record
from schemas.bounds import MAX_EVENT_BYTES, MAX_ITEMS
from schemas.codec import decode, encode
from schemas.errors import ContractError, UnknownSchema
from schemas.events import DeadLettered, Event
from schemas.topics import MAX_LETTER_BYTES

NOBODY = BrokerProfile("127.0.0.1:1", security={"log_level": "0"})


def record(value: bytes = b"bytes", headers: list[tuple[str, bytes]] | None = None, key: bytes | None = b"k") -> Record:
    return Record("requests.acme", 3, 7, 100, key, value, headers or [])


class Producer:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Event, str]] = []

    def send(self, topic: str, event: Event, *, key: str, **rest: Any) -> None:
        assert rest["max_bytes"] == MAX_LETTER_BYTES
        self.sent.append((topic, event, key))


def test_a_letter_holds_everything_of_the_record_and_reads_back_the_same() -> None:
    origin = record(b"\xff\x00", [("a", b"1"), ("b", b"\xff"), ("a", b"2")], key=None)
    letter = dead_letter(origin, UnknownSchema("who?", schema_id=77), consumer="sink", now_us=9)
    assert (letter.value, letter.key, letter.headers) == (b"\xff\x00", None, {"a": b"2", "b": b"\xff"})
    assert (letter.reason, letter.message, letter.schema_id) == ("unknown_schema", "who?", 77)
    assert decode(encode(letter)) == letter


def test_a_message_that_repeats_a_hostile_event_is_cut() -> None:
    letter = dead_letter(record(), ContractError("x" * 900_000), consumer="c", now_us=1)
    assert letter.message == "x" * 1_000 + "…"


@pytest.mark.parametrize(
    ("topic", "letters"),
    [("tokens.acme", "dead-letters.acme"), ("telemetry", "dead-letters._system"), ("odd", "dead-letters._system")],
)
def test_a_letter_goes_to_the_topics_tenant_or_to_the_systems(topic: str, letters: str) -> None:
    producer = Producer()
    origin = Record(topic, 0, 5, 1, None, b"x", [])
    send_dead_letter(cast(EventProducer, producer), origin, ContractError("?"), consumer="c", now_us=1)
    ((where, event, key),) = producer.sent
    assert (where, key) == (letters, f"{topic}/0/5")
    assert isinstance(event, DeadLettered)


@pytest.mark.parametrize(
    "hopeless",
    [record(bytes(MAX_EVENT_BYTES)), record(headers=[(f"h{n}", b"") for n in range(MAX_ITEMS + 1)])],
    ids=["too large", "too many headers"],
)
def test_a_record_that_no_reader_of_letters_would_take_is_refused(hopeless: Record) -> None:
    with EventProducer(NOBODY, client_id="test") as producer, pytest.raises(RecordRefused):
        send_dead_letter(producer, hopeless, ContractError("?"), consumer="c", now_us=1)


def test_other_events_are_held_to_less_than_a_letter() -> None:
    letter = dead_letter(record(bytes(1_100_000)), ContractError("?"), consumer="c", now_us=1)
    with EventProducer(NOBODY, client_id="test") as producer:
        with pytest.raises(RecordRefused, match="more than the 1000000"):
            producer.send("requests.acme", letter, key="k")
        producer.send("dead-letters.acme", letter, key="k", max_bytes=MAX_LETTER_BYTES)
        producer.close(0.01)
