"""An entry survives its changelog."""

from __future__ import annotations

import dataclasses
import json

from schemas.events import RequestAdmitted, RequestRejected
from streams.entry import Entry, Placement, decode_entry, encode_entry
from streams.quota import Ledger
from tests.unit.streams.samples import NOW_US, request_id

LEDGER = Ledger(NOW_US, 59 * 60_000_000, -5, 1, 30)
ADMITTED = RequestAdmitted(
    request_id=request_id(),
    tenant="acme",
    at_us=NOW_US,
    reserved_tokens=30,
    limit_requests=60,
    remaining_requests=59,
    reset_requests_ms=1000,
    limit_tokens=6000,
    remaining_tokens=5970,
    reset_tokens_ms=300,
)
REJECTED = RequestRejected(
    request_id=request_id(),
    tenant="acme",
    at_us=NOW_US,
    stage="quota",
    status=429,
    error_type="rate_limit_error",
    code="token_rate_exceeded",
    message="zu viel — 多すぎ",
    retry_after_ms=12,
)


def test_an_admitted_entry_comes_back_equal_open_and_settled() -> None:
    placement = Placement("chat@v1", "chat-v1", "adapter tone@v1 of chat@v1", "tone@v1", NOW_US, "/adapters/tone")
    entry = Entry(ADMITTED, placement, 7, LEDGER)
    settled = dataclasses.replace(entry, settled_at_offset=9, settled_at_us=NOW_US)

    assert decode_entry(encode_entry(entry)) == entry
    assert decode_entry(encode_entry(settled)) == settled
    assert (entry.is_open, settled.is_open) == (True, False)
    assert (entry.ledger_offset, settled.ledger_offset) == (7, 9)


def test_a_rejected_entry_comes_back_equal_and_is_not_open() -> None:
    entry = Entry(REJECTED, None, 7, LEDGER)

    assert decode_entry(encode_entry(entry)) == entry
    assert not entry.is_open


def test_an_entry_that_was_written_before_there_were_adapters_is_read() -> None:
    entry = Entry(ADMITTED, Placement("chat@v1", "chat-v1", "alias chat"), 7, LEDGER)
    stored = json.loads(encode_entry(entry))
    del stored["adapter"]

    assert decode_entry(json.dumps(stored).encode()) == entry


def test_processors_of_release_0_2_0_can_read_an_entry_while_a_newer_release_is_rolled_out() -> None:
    placement = Placement("chat@v1", "chat-v1", "adapter tone@v1 of chat@v1", "tone@v1", NOW_US, "/adapters/tone")

    stored = json.loads(encode_entry(Entry(ADMITTED, placement, 7, LEDGER)))

    # They call Placement(*placement) with three fields, Ledger(*ledger) with five, and RequestAdmitted(**admitted).
    assert stored["placement"] == ["chat@v1", "chat-v1", "adapter tone@v1 of chat@v1"]
    assert len(stored["ledger"]) == 5
    assert RequestAdmitted(**stored["admitted"]) == ADMITTED
