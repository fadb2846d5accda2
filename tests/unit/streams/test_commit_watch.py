"""The watch over offsets that are not committed."""

from __future__ import annotations

import pytest

from streams.commit_watch import CommitWatch
from streams.errors import CommitStuck
from streams.progress import Position

P: Position = ("validated", 1)
Q: Position = ("validated", 2)


def watch() -> CommitWatch:
    return CommitWatch("decide", stuck_after_s=60.0)


def test_offsets_that_stand_still_while_more_is_done_are_stuck() -> None:
    watched = watch()
    for second in range(61):
        watched.look({P: 100 + second}, {P: 40}, now_s=second)

    with pytest.raises(
        CommitStuck,
        match=r"decide: in validated/1 all below offset 161 is done, and the committed offset has stood at 40 .* 60 s",
    ):
        watched.look({P: 161}, {P: 40}, now_s=61)


def test_a_partition_of_which_nothing_was_ever_committed_is_stuck_as_well() -> None:
    watched = watch()
    for second in range(61):
        watched.look({P: 1 + second}, {}, now_s=second)

    with pytest.raises(CommitStuck, match="stood at 0"):
        watched.look({P: 62}, {}, now_s=61)


def test_offsets_that_are_always_behind_and_always_move_are_not_stuck() -> None:
    watched = watch()
    for second in range(0, 1000, 20):
        watched.look({P: second + 500}, {P: second}, now_s=second)


def test_an_idle_partition_is_not_stuck() -> None:
    watched = watch()
    for second in range(1000):
        watched.look({P: 100}, {P: 100}, now_s=second)


def test_an_outage_of_the_log_in_which_nothing_is_done_is_not_counted() -> None:
    watched = watch()
    for second in range(20):
        watched.look({P: 100 + second}, {P: 100}, now_s=second)
    for second in range(20, 300):
        watched.look({P: 119}, {P: 100}, now_s=second)
    for second in range(300, 360):
        watched.look({P: 119 + second}, {P: 100}, now_s=second)

    with pytest.raises(CommitStuck):
        watched.look({P: 1000}, {P: 100}, now_s=361)


def test_a_partition_that_went_away_and_came_back_has_its_whole_time_again() -> None:
    watched = watch()
    for second in range(50):
        watched.look({P: 100 + second, Q: 7}, {P: 100, Q: 7}, now_s=second)
    watched.look({Q: 7}, {P: 100, Q: 7}, now_s=50)
    for second in range(51, 110):
        watched.look({P: 100 + second, Q: 7}, {P: 100, Q: 7}, now_s=second)
