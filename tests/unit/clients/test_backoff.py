from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_client.backoff import Backoff


def test_the_longest_wait_doubles_up_to_a_limit() -> None:
    policy = Backoff(first_s=0.1, most_s=0.5, attempts=None)
    assert [policy.delay_s(attempt, 1.0) for attempt in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_after_the_last_attempt_there_is_none() -> None:
    policy = Backoff(attempts=2)
    assert policy.delay_s(1, 0.5) is not None
    assert policy.delay_s(2, 0.5) is None
    assert Backoff(attempts=0).delay_s(0, 0.5) is None


@given(attempt=st.integers(0, 10_000), draw=st.floats(0, 1, exclude_max=True), at_least=st.floats(0, 100))
def test_jitter_is_full_and_comes_on_top_of_what_the_server_asks_for(
    attempt: int, draw: float, at_least: float
) -> None:
    policy = Backoff(first_s=0.2, most_s=3.0, attempts=None)
    delay = policy.delay_s(attempt, draw, at_least_s=at_least)
    assert delay is not None
    assert at_least <= delay <= at_least + min(3.0, 0.2 * 2 ** min(attempt, 10))
    assert policy.delay_s(attempt, 0.0, at_least_s=at_least) == at_least
