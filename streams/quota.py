"""One tenant's quota as a ledger: token buckets for requests and tokens a minute, and a count of open requests. Pure.

A bucket holds one minute's worth and refills continuously. Admission takes out one request and the most tokens that it
can need; settlement puts back what was not used. Time is the events' own, so the ledger is a function of the tenant's
events in the order of their topic: replayed, it comes out the same. All arithmetic is in whole numbers, so that it
comes out the same on every machine too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# Bucket levels are in units x microseconds a minute: a rate of r a minute refills r of these each microsecond.
SCALE = 60_000_000
CONCURRENCY_RETRY_MS = 1_000  # nobody knows when an open request ends

RefusalCode = Literal[
    "request_rate_exceeded", "token_rate_exceeded", "concurrency_exceeded", "request_exceeds_quota", "quota_is_zero"
]


@dataclass(frozen=True, slots=True)
class Limits:
    """The policy: what a tenant may do. Each bucket holds one minute of its rate."""

    requests_per_minute: int
    tokens_per_minute: int
    max_concurrent_requests: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state.

    as_of_us: event time up to which the buckets are refilled.
    requests, tokens: bucket levels in 1/SCALE; tokens can be below zero when more was used than reserved.
    open_requests, reserved_tokens: what is admitted and not settled.
    """

    as_of_us: int
    requests: int
    tokens: int
    open_requests: int = 0
    reserved_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Remaining:
    """Whole units left in a bucket, and how long until it is full again."""

    units: int
    reset_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No room. retry_after_ms: when the same request can fit; None if it never can."""

    code: RefusalCode
    retry_after_ms: int | None


def full_ledger(limits: Limits, *, now_us: int) -> Ledger:
    """The ledger of a tenant that has asked for nothing yet."""
    return Ledger(now_us, limits.requests_per_minute * SCALE, limits.tokens_per_minute * SCALE)


def refill(ledger: Ledger, limits: Limits, *, now_us: int) -> Ledger:
    """The ledger at a later time; an earlier one than it has seen adds nothing and takes nothing away."""
    elapsed_us = max(0, now_us - ledger.as_of_us)
    return replace(
        ledger,
        as_of_us=ledger.as_of_us + elapsed_us,
        requests=_refilled(ledger.requests, limits.requests_per_minute, elapsed_us),
        tokens=_refilled(ledger.tokens, limits.tokens_per_minute, elapsed_us),
    )


def reserve(ledger: Ledger, limits: Limits, *, tokens: int, now_us: int) -> tuple[Ledger, Refused | None]:
    """Take one request and `tokens` out of the buckets; or leave them as they are (refilled), with the reason.

    tokens: the prompt's and the most that may be generated, so that an admitted request always has enough.
    """
    ledger = refill(ledger, limits, now_us=now_us)
    refused = _refusal(ledger, limits, tokens)
    if refused is not None:
        return ledger, refused
    admitted = replace(
        ledger,
        requests=ledger.requests - SCALE,
        tokens=ledger.tokens - tokens * SCALE,
        open_requests=ledger.open_requests + 1,
        reserved_tokens=ledger.reserved_tokens + tokens,
    )
    return admitted, None


def settle(ledger: Ledger, limits: Limits, *, reserved: int, used: int, now_us: int) -> Ledger:
    """Replace a reservation by what was used: the rest goes back into the token bucket, up to its brim.

    The caller settles each reservation once.
    """
    ledger = refill(ledger, limits, now_us=now_us)
    return replace(
        ledger,
        tokens=min(limits.tokens_per_minute * SCALE, ledger.tokens + (reserved - used) * SCALE),
        open_requests=ledger.open_requests - 1,
        reserved_tokens=ledger.reserved_tokens - reserved,
    )


def remaining_requests(ledger: Ledger, limits: Limits) -> Remaining:
    return _remaining(ledger.requests, limits.requests_per_minute)


def remaining_tokens(ledger: Ledger, limits: Limits) -> Remaining:
    return _remaining(ledger.tokens, limits.tokens_per_minute)


def _refilled(level: int, rate: int, elapsed_us: int) -> int:
    # min: the limit may have been lowered since
    return min(rate * SCALE, level + rate * elapsed_us)


def _refusal(ledger: Ledger, limits: Limits, tokens: int) -> Refused | None:
    if limits.requests_per_minute < 1 or limits.max_concurrent_requests < 1:
        return Refused("quota_is_zero", None)
    if tokens > limits.tokens_per_minute:
        return Refused("request_exceeds_quota", None)
    if ledger.open_requests >= limits.max_concurrent_requests:
        return Refused("concurrency_exceeded", CONCURRENCY_RETRY_MS)
    if ledger.requests < SCALE:
        return Refused("request_rate_exceeded", _wait_ms(SCALE - ledger.requests, limits.requests_per_minute))
    if ledger.tokens < tokens * SCALE:
        return Refused("token_rate_exceeded", _wait_ms(tokens * SCALE - ledger.tokens, limits.tokens_per_minute))
    return None


def _remaining(level: int, rate: int) -> Remaining:
    missing = rate * SCALE - level
    return Remaining(max(0, level) // SCALE, _wait_ms(missing, rate) if missing > 0 and rate > 0 else 0)


def _wait_ms(missing: int, rate: int) -> int:
    """How long the refill of `missing` takes, rounded up so that waiting it is always enough."""
    return -(-missing // (rate * 1000))
