"""Records become rows."""

from __future__ import annotations

import json

import pytest

from schemas.codec import SINGLE_OBJECT
from schemas.errors import ContractError
from schemas.events import DeadLettered, Event, TokenLogprob, TokenLogprobs, TokensGenerated
from streams.sink.rows import (
    EventRows,
    Origin,
    Partition,
    Rows,
    TokenRows,
    add_event,
    add_tokens,
    add_undecodable,
    decoded,
    deduplication_token,
    payload_of,
)
from tests.request_story import Story

STORY = Story()
TOKENS = Partition("log", "tokens.acme", 2)


def as_dict(rows: Rows) -> dict[str, object]:
    """The only row."""
    (row,) = zip(*rows.columns, strict=True)
    return dict(zip(rows.names, row, strict=True))


def event_row(partition: Partition, event: Event) -> dict[str, object]:
    rows = EventRows()
    add_event(rows, Origin(partition, 7), event)
    return as_dict(rows)


def test_a_token_event_becomes_a_row_with_its_tokens_counted() -> None:
    _, event = STORY.tokens(at=10_000, index=3)
    assert isinstance(event, TokensGenerated)
    rows = TokenRows()
    add_tokens(rows, Origin(TOKENS, 7), event)
    row = as_dict(rows)
    assert (row["log_id"], row["topic"], row["partition"], row["offset"]) == ("log", "tokens.acme", 2, 7)
    assert (row["tenant"], row["request_id"], row["at"]) == ("acme", STORY.request_id, event.at_us)
    assert (row["attempt"], row["index"], row["tokens"], row["token_ids"]) == (1, 3, 1, (3,))
    assert (row["text_offset_chars"], row["text"]) == (15, " word")


def test_log_probabilities_become_a_column_each_with_an_entry_for_each_token() -> None:
    likely = TokenLogprob(token_id=9, utf8=b" no", logprob=-0.25)
    _, event = STORY.tokens(
        10_000, 3, logprobs=(TokenLogprobs(logprob=-1.5, utf8=b" word", top=(likely,)),
                             TokenLogprobs(logprob=-2.5, utf8=b"\xe2\x82", top=())),
    )  # fmt: skip
    assert isinstance(event, TokensGenerated)
    rows = TokenRows()
    add_tokens(rows, Origin(TOKENS, 7), event)
    row = as_dict(rows)
    assert (row["logprobs"], row["token_utf8"]) == ([-1.5, -2.5], [b" word", b"\xe2\x82"])
    assert row["top_logprobs"] == [[(9, b" no", -0.25)], []]


@pytest.mark.parametrize(("adapter", "column"), [("tone@v1", "tone@v1"), (None, "")])
def test_an_event_that_names_an_adapter_has_it_in_a_column(adapter: str | None, column: str) -> None:
    topic, event = STORY.routed(adapter=adapter)
    assert event_row(Partition("log", topic, 0), event)["adapter"] == column
    topic, event = STORY.submitted()
    assert event_row(Partition("log", topic, 0), event)["adapter"] == ""


def test_any_other_event_keeps_all_of_its_fields_as_json() -> None:
    topic, event = STORY.submitted()
    row = event_row(Partition("log", topic, 0), event)
    assert (row["event_type"], row["tenant"], row["request_id"]) == ("RequestSubmitted", "acme", STORY.request_id)
    payload = row["payload"]
    assert isinstance(payload, bytes)
    fields = json.loads(payload)
    assert set(fields) == set(event.__dict__)
    assert fields["messages"] == [{"role": "user", "content": "Hi"}]


def test_an_event_in_a_tenants_topic_is_that_tenants_whatever_it_names() -> None:
    _, event = STORY.submitted()
    assert event_row(Partition("log", "requests.mallory", 0), event)["tenant"] == "mallory"
    assert event_row(Partition("log", "validated", 0), event)["tenant"] == "acme"
    _, tokens = STORY.tokens(at=10_000, index=3)
    assert isinstance(tokens, TokensGenerated)
    rows = TokenRows()
    add_tokens(rows, Origin(Partition("log", "tokens.mallory", 0), 7), tokens)
    assert as_dict(rows)["tenant"] == "mallory"


def test_bytes_of_a_dead_letter_stand_in_its_payload_in_base64_and_its_tenant_comes_from_the_topic() -> None:
    letter = DeadLettered(
        at_us=5, consumer="validate", reason="undecodable", message="no header", origin_topic="requests.acme",
        origin_partition=0, origin_offset=3, value=b"\x00\xff",
    )  # fmt: skip
    assert json.loads(payload_of(letter))["value"] == "AP8="
    assert event_row(Partition("log", "dead-letters.acme", 0), letter)["tenant"] == "acme"
    assert event_row(Partition("log", "dead-letters._system", 0), letter)["tenant"] == ""


@pytest.mark.parametrize(("value", "reason"), [(b"garbage", "undecodable"), (b"\xc3\x01" + bytes(9), "unknown_schema")])
def test_bytes_that_are_no_event_are_kept_as_they_are_with_the_reason(value: bytes, reason: str) -> None:
    rows = EventRows()
    error = decoded(value, SINGLE_OBJECT)
    assert isinstance(error, ContractError)
    add_undecodable(rows, Origin(TOKENS, 7), value, error, timestamp_ms=12)
    row = as_dict(rows)
    assert (row["event_type"], row["payload"], row["decode_error"]) == ("", value, reason)
    assert (row["tenant"], row["at"]) == ("acme", 12_000)


def test_a_tombstone_is_a_row_without_a_reason() -> None:
    rows = EventRows()
    error = decoded(b"", SINGLE_OBJECT)
    assert isinstance(error, ContractError)
    add_undecodable(rows, Origin(TOKENS, 7), b"", error, timestamp_ms=-1)
    assert (as_dict(rows)["decode_error"], as_dict(rows)["at"]) == ("", 0)


def test_the_deduplication_token_depends_on_the_offsets_and_not_on_the_order_of_partitions() -> None:
    def token_of(*origins: tuple[int, int]) -> str:
        rows = EventRows()
        for number, offset in origins:
            add_undecodable(rows, Origin(Partition("log", "t", number), offset), b"", ContractError(), 0)
        return deduplication_token(rows)

    assert token_of((0, 1), (1, 5), (0, 2)) == token_of((1, 5), (0, 1), (0, 2))
    assert token_of((0, 1), (1, 5), (0, 2)) != token_of((0, 1), (1, 5), (0, 3))
    # a row fewer between the same ends is another batch
    assert token_of((0, 1), (0, 2), (0, 3)) != token_of((0, 1), (0, 3))


def test_a_log_that_began_again_has_other_tokens() -> None:
    first, second = EventRows(), EventRows()
    _, event = STORY.submitted()
    add_event(first, Origin(Partition("one", "requests.acme", 0), 0), event)
    add_event(second, Origin(Partition("two", "requests.acme", 0), 0), event)
    assert deduplication_token(first) != deduplication_token(second)
