"""The ledger, case by case; test_quota.py in tests/property holds what is true of every history."""

from __future__ import annotations

import pytest

from streams.quota import (
    SCALE,
    Limits,
    Refused,
    full_ledger,
    refill,
    remaining_requests,
    remaining_tokens,
    reserve,
    settle,
)
from tests.unit.streams.samples import NOW_US, SECOND_US

LIMITS = Limits(requests_per_minute=60, tokens_per_minute=600, max_concurrent_requests=2)


def refusal(limits: Limits, *amounts: int) -> Refused | None:
    """What is said to the last of requests that come at the same moment."""
    ledger, refused = full_ledger(limits, now_us=NOW_US), None
    for tokens in amounts:
        ledger, refused = reserve(ledger, limits, tokens=tokens, now_us=NOW_US)
    return refused


def test_an_admission_takes_one_request_and_its_tokens() -> None:
    ledger, refused = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=100, now_us=NOW_US)

    assert refused is None
    assert remaining_requests(ledger, LIMITS).units == 59
    assert remaining_tokens(ledger, LIMITS).units == 500
    assert (ledger.open_requests, ledger.reserved_tokens) == (1, 100)


def test_tokens_that_are_used_up_come_back_with_time_and_waiting_as_told_is_enough() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=600, now_us=NOW_US)

    ledger, refused = reserve(ledger, LIMITS, tokens=50, now_us=NOW_US)
    assert refused == Refused("token_rate_exceeded", retry_after_ms=5000)

    later = NOW_US + 5000 * 1000
    assert reserve(ledger, LIMITS, tokens=50, now_us=later - 1000)[1] is not None
    assert reserve(ledger, LIMITS, tokens=50, now_us=later)[1] is None


def test_requests_a_minute_are_refused_with_the_wait_for_the_next_one() -> None:
    limits = Limits(requests_per_minute=2, tokens_per_minute=600, max_concurrent_requests=10)

    assert refusal(limits, 1, 1) is None
    assert refusal(limits, 1, 1, 1) == Refused("request_rate_exceeded", retry_after_ms=30_000)


def test_open_requests_are_limited_until_one_is_settled() -> None:
    ledger = full_ledger(LIMITS, now_us=NOW_US)
    for _ in range(2):
        ledger, _ = reserve(ledger, LIMITS, tokens=10, now_us=NOW_US)
    _, refused = reserve(ledger, LIMITS, tokens=10, now_us=NOW_US)
    assert refused is not None
    assert refused.code == "concurrency_exceeded"

    ledger = settle(ledger, LIMITS, reserved=10, used=10, now_us=NOW_US)
    assert reserve(ledger, LIMITS, tokens=10, now_us=NOW_US)[1] is None


def test_a_request_larger_than_the_bucket_is_told_so_instead_of_to_wait() -> None:
    assert refusal(LIMITS, 600) is None
    assert refusal(LIMITS, 601) == Refused("request_exceeds_quota", retry_after_ms=None)


@pytest.mark.parametrize("limits", [Limits(0, 600, 2), Limits(60, 600, 0)])
def test_a_quota_of_zero_is_no_matter_of_waiting(limits: Limits) -> None:
    assert refusal(limits, 1) == Refused("quota_is_zero", retry_after_ms=None)


def test_a_refusal_takes_nothing() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=500, now_us=NOW_US)

    assert reserve(ledger, LIMITS, tokens=200, now_us=NOW_US)[0] == ledger


def test_settlement_gives_back_what_was_not_used() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=500, now_us=NOW_US)

    ledger = settle(ledger, LIMITS, reserved=500, used=120, now_us=NOW_US)

    assert remaining_tokens(ledger, LIMITS).units == 480
    assert (ledger.open_requests, ledger.reserved_tokens) == (0, 0)


def test_settlement_never_overfills_the_bucket() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=500, now_us=NOW_US)

    ledger = settle(ledger, LIMITS, reserved=500, used=0, now_us=NOW_US + 60 * SECOND_US)

    assert ledger.tokens == 600 * SCALE


def test_more_used_than_reserved_is_a_debt_that_the_refill_pays_first() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=600, now_us=NOW_US)

    ledger = settle(ledger, LIMITS, reserved=600, used=650, now_us=NOW_US)

    assert remaining_tokens(ledger, LIMITS).units == 0
    assert reserve(ledger, LIMITS, tokens=10, now_us=NOW_US)[1] == Refused("token_rate_exceeded", 6000)


def test_an_event_from_before_changes_no_level() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=500, now_us=NOW_US)

    assert refill(ledger, LIMITS, now_us=NOW_US - SECOND_US) == ledger


def test_a_lowered_limit_counts_at_once_and_a_raised_one_fills_up_with_time() -> None:
    lower, higher = Limits(60, 100, 2), Limits(60, 1200, 2)
    ledger = full_ledger(LIMITS, now_us=NOW_US)

    assert remaining_tokens(refill(ledger, lower, now_us=NOW_US), lower).units == 100
    assert remaining_tokens(refill(ledger, higher, now_us=NOW_US), higher).units == 600
    assert remaining_tokens(refill(ledger, higher, now_us=NOW_US + 30 * SECOND_US), higher).units == 1200


def test_reset_is_the_time_until_the_bucket_is_full_again() -> None:
    ledger, _ = reserve(full_ledger(LIMITS, now_us=NOW_US), LIMITS, tokens=300, now_us=NOW_US)

    assert remaining_tokens(ledger, LIMITS).reset_ms == 30_000
    assert remaining_requests(ledger, LIMITS).reset_ms == 1000
    assert remaining_tokens(full_ledger(LIMITS, now_us=NOW_US), LIMITS).reset_ms == 0
