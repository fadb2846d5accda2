"""Whatever a partition goes through: commits that move never raise, and commits that hang while work goes on do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.commit_watch import CommitWatch
from streams.errors import CommitStuck
from streams.progress import Position

P: Position = ("validated", 0)
STUCK_AFTER_S = 60.0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=40),
)
def test_a_partition_that_commits_at_least_once_a_minute_is_never_stuck(steps: list[tuple[int, int]]) -> None:
    watch, now_s, done, committed = CommitWatch("decide", STUCK_AFTER_S), 0.0, 0, 0
    for more, seconds in steps:
        done += more
        watch.look({P: done}, {P: committed}, now_s=now_s)
        now_s += seconds
        watch.look({P: done}, {P: committed}, now_s=now_s)
        committed = done


@given(st.integers(0, 1000), st.lists(st.integers(1, 29), min_size=1, max_size=30), st.integers(1, 10))
def test_a_partition_that_goes_on_without_a_commit_is_stuck_after_a_minute_and_not_before(
    committed: int, pauses: list[int], more: int
) -> None:
    watch, now_s, done = CommitWatch("decide", STUCK_AFTER_S), 0.0, committed + 1
    watch.look({P: done}, {P: committed}, now_s=now_s)
    for pause in pauses:
        now_s += pause
        done += more
        if now_s > STUCK_AFTER_S:
            with pytest.raises(CommitStuck):
                watch.look({P: done}, {P: committed}, now_s=now_s)
            return
        watch.look({P: done}, {P: committed}, now_s=now_s)
