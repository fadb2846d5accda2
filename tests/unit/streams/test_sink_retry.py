"""Waits between attempts."""

from __future__ import annotations

from streams.sink.retry import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.failed(now=0.0) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_the_next_attempt_is_due_when_the_wait_is_over() -> None:
    backoff = Backoff(0.5, 3.0)
    backoff.failed(now=10.0)
    assert (backoff.seconds_left(10.25), backoff.seconds_left(10.5), backoff.seconds_left(99.0)) == (0.25, 0.0, 0.0)


def test_a_success_starts_again_from_the_shortest_wait_and_says_whether_it_ended_a_failure() -> None:
    backoff = Backoff(0.5, 3.0)
    assert not backoff.worked()
    backoff.failed(now=0.0)
    backoff.failed(now=1.0)
    assert backoff.worked()
    assert backoff.seconds_left(1.0) == 0.0
    assert backoff.failed(now=2.0) == 0.5


def test_a_very_long_outage_does_not_overflow() -> None:
    backoff = Backoff(0.5, 10.0, failures=10_000)
    assert backoff.failed(now=0.0) == 10.0
