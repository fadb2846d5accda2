"""Letters as they are folded from their topics, and what may go back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventlog.letters import (
    REQUEUED_FROM,
    Letter,
    Origin,
    Place,
    Reading,
    apply,
    read_now,
    refusal,
    requeued_headers,
    select,
)
from schemas.codec import SINGLE_OBJECT, encode
from schemas.errors import InvalidName
from schemas.events import DeadLettered, DeadLetterRequeued, Event, QuotaSettled, RequestCancelled, TenantRegistered

REQUEST_ID = "01a22b05-26c0-71f8-819e-55df79420003"
ORIGIN = Origin("requests.acme", 0, 12)
LETTER = DeadLettered(
    at_us=5, consumer="streams.validate", reason="undecodable", message="no header", origin_topic="requests.acme",
    origin_partition=0, origin_offset=12, value=b"bytes",
)  # fmt: skip
REQUEUED = DeadLetterRequeued(
    at_us=9, origin_topic="requests.acme", origin_partition=0, origin_offset=12, requeued_offset=40, operator="ann"
)
CANCEL = RequestCancelled(request_id=REQUEST_ID, tenant="acme", at_us=7, reason="client")
TENANT = TenantRegistered(
    tenant="acme", at_us=1, requests_per_minute=1, tokens_per_minute=1, max_concurrent_requests=1
)  # fmt: skip
READABLE = Reading(CANCEL, None)


def folded(*events: DeadLettered | DeadLetterRequeued) -> dict[Origin, Letter]:
    letters: dict[Origin, Letter] = {}
    for offset, event in enumerate(events):
        apply(letters, event, Place("dead-letters.acme", offset))
    return letters


def letter(*events: DeadLettered | DeadLetterRequeued) -> Letter:
    (found,) = folded(*events).values()
    return found


def test_an_origin_is_written_as_it_is_read() -> None:
    assert str(ORIGIN) == "requests.acme/0/12"
    assert Origin.parse("requests.acme/0/12") == ORIGIN
    assert (ORIGIN.tenant, Origin("control.tenants", 0, 1).tenant) == ("acme", "_system")


@pytest.mark.parametrize(
    "event",
    [
        replace(LETTER, origin_topic="requests.\x1b[2J.acme"),
        replace(LETTER, origin_partition=-1),
        replace(REQUEUED, origin_offset=-1),
    ],
)
def test_an_event_can_not_bring_an_origin_that_no_record_has(event: DeadLettered | DeadLetterRequeued) -> None:
    with pytest.raises(InvalidName):
        Origin.of(event)


@pytest.mark.parametrize("text", ["", "requests.acme", "requests.acme/0", "requests.acme/x/1", "a/0/-1", "a b/0/1"])
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(InvalidName, match="names no dead letter"):
        Origin.parse(text)


def test_a_letter_that_came_twice_is_one_with_the_newest_reason_and_the_first_time() -> None:
    again = replace(LETTER, at_us=8, reason="unknown_schema", message="newer", consumer="sink")
    found = letter(LETTER, again)
    assert (found.at_us, found.times, found.reason, found.consumer) == (5, 2, "unknown_schema", "sink")
    assert found.place == Place("dead-letters.acme", 1)


def test_a_requeued_letter_stays_so_when_its_record_is_read_again() -> None:
    assert letter(LETTER).state == "open"
    assert letter(LETTER, REQUEUED).state == "requeued"
    assert letter(LETTER, REQUEUED, LETTER).state == "requeued"
    assert letter(LETTER, REQUEUED, replace(REQUEUED, requeued_offset=41)).requeued == replace(
        REQUEUED, requeued_offset=41
    )


def test_other_bytes_at_the_same_place_are_another_letter() -> None:
    # the topic was deleted and made again
    found = letter(LETTER, LETTER, REQUEUED, replace(LETTER, at_us=20, value=b"others"))
    assert (found.state, found.times, found.at_us) == ("open", 1, 20)


def test_a_requeue_of_a_letter_that_is_gone_is_no_letter() -> None:
    assert folded(REQUEUED) == {}


def test_open_letters_are_picked_oldest_first() -> None:
    later = replace(LETTER, at_us=30, origin_offset=3, reason="unknown_schema")
    letters = list(
        folded(later, LETTER, replace(LETTER, origin_offset=13), replace(REQUEUED, origin_offset=13)).values()
    )
    assert [found.origin.offset for found in select(letters)] == [12, 3]
    assert [found.origin.offset for found in select(letters, with_requeued=True)] == [12, 13, 3]
    assert [found.origin.offset for found in select(letters, reason="unknown_schema")] == [3]
    assert [found.origin.offset for found in select(letters, since_us=30)] == [3]


def reading(event: Event, topic: str = "requests.acme") -> Reading:
    return read_now(replace(LETTER, value=encode(event), origin_topic=topic), SINGLE_OBJECT, token_partitions=4)


def test_an_event_that_belongs_where_it_came_from_is_readable_now() -> None:
    assert reading(CANCEL) == READABLE
    assert reading(TENANT, "control.tenants").problem is None


@pytest.mark.parametrize(
    ("event", "topic", "problem"),
    [
        (CANCEL, "requests.bolt", "an event of another tenant is in requests.bolt"),
        (CANCEL, "lifecycle.acme", "lifecycle.acme holds no RequestCancelled"),
        (CANCEL, "somewhere", "somewhere holds no RequestCancelled"),
        (replace(CANCEL, request_id="r1"), "requests.acme", "'r1'"),
        (replace(CANCEL, request_id=REQUEST_ID[:-1] + "4"), "requests.acme", "partition that does not exist"),
    ],
)
def test_an_event_that_its_readers_would_not_take_is_not_readable(event: Event, topic: str, problem: str) -> None:
    found = reading(event, topic)
    assert found.event == event
    assert found.problem is not None
    assert problem in found.problem


def test_bytes_that_are_no_event_are_not_readable() -> None:
    found = read_now(LETTER, SINGLE_OBJECT, token_partitions=4)
    assert found.event is None
    assert found.problem is not None
    assert "header" in found.problem


def test_what_speaks_against_a_requeue() -> None:
    assert refusal(letter(LETTER), READABLE) is None
    assert refusal(letter(LETTER), Reading(None, "no header")) == "still cannot be read: no header"
    assert refusal(letter(LETTER), Reading(CANCEL, "another's")) == "would not be taken: another's"
    assert refusal(letter(LETTER, REQUEUED), READABLE) == "was requeued already, as requests.acme/0/40"


@pytest.mark.parametrize(("topic", "why"), [("control.tenants", "would undo"), ("somewhere", "no topic of ours")])
def test_some_topics_take_nothing_back(topic: str, why: str) -> None:
    found = refusal(letter(replace(LETTER, origin_topic=topic)), READABLE)
    assert found is not None
    assert why in found


def test_a_requeued_record_says_where_it_comes_from_once() -> None:
    settled = QuotaSettled.__name__.encode()
    headers = {"ce_type": settled, REQUEUED_FROM: b"requests.acme/0/1"}
    assert requeued_headers(headers, ORIGIN) == [("ce_type", settled), (REQUEUED_FROM, b"requests.acme/0/12")]
