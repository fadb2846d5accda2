"""The offset tracker against a model that remembers everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventlog.offsets import OffsetTracker


class OffsetTrackerMachine(RuleBasedStateMachine):
    """Records are handed out in order, with gaps, and finished in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker()
        self.taken: list[int] = []
        self.finished: set[int] = set()
        self.commits: list[int] = []

    @rule(gap=st.integers(0, 3))
    def takes(self, gap: int) -> None:
        offset = (self.taken[-1] + 1 if self.taken else 0) + gap
        self.tracker.take(offset)
        self.taken.append(offset)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finishes_one_that_may_be_finished_already(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.taken))
        self.tracker.done(offset)
        self.finished.add(offset)

    @rule()
    def commits_what_moved(self) -> None:
        offset = self.tracker.to_commit()
        if offset is not None:
            self.commits.append(offset)
        assert self.tracker.to_commit() is None, "nothing moved in between"
        assert (self.commits[-1] if self.commits else None) == self.tracker.watermark

    @precondition(lambda self: self.commits)
    @rule()
    def a_commit_is_refused_and_given_again(self) -> None:
        self.tracker.commit_failed()
        self.commits.pop()
        again = self.tracker.to_commit()
        assert again == self.tracker.watermark
        assert again is not None
        self.commits.append(again)

    @invariant()
    def nothing_unfinished_is_below_the_watermark_and_nothing_finished_waits_behind_it(self) -> None:
        open_offsets = [offset for offset in self.taken if offset not in self.finished]
        assert self.tracker.open_count == len(open_offsets)
        if not self.taken:
            assert self.tracker.watermark is None
        elif open_offsets:
            assert self.tracker.watermark == open_offsets[0]
        else:
            assert self.tracker.watermark == self.taken[-1] + 1

    @invariant()
    def commits_rise(self) -> None:
        assert self.commits == sorted(set(self.commits))


TestOffsetTracker = OffsetTrackerMachine.TestCase
TestOffsetTracker.settings = settings(max_examples=60, stateful_step_count=40)


@given(offsets=st.lists(st.integers(0, 1000), min_size=1, unique=True), data=st.data())
def test_a_restart_at_any_commit_reads_every_unfinished_record_again(offsets: list[int], data: st.DataObject) -> None:
    tracker = OffsetTracker()
    for offset in sorted(offsets):
        tracker.take(offset)
    finished = data.draw(st.lists(st.sampled_from(offsets), unique=True))
    for offset in finished:
        tracker.done(offset)
    committed = tracker.to_commit()
    assert committed is not None
    assert set(offsets) - set(finished) <= {offset for offset in offsets if offset >= committed}


@given(first=st.integers(0, 100), back=st.integers(0, 100))
def test_an_offset_that_does_not_rise_is_refused(first: int, back: int) -> None:
    tracker = OffsetTracker()
    tracker.take(first)
    with pytest.raises(ValueError, match=f"was taken after {first}"):
        tracker.take(max(0, first - back))


@given(taken=st.none() | st.integers(0, 100), beyond=st.integers(0, 100))
def test_what_was_never_taken_cant_be_done(taken: int | None, beyond: int) -> None:
    tracker = OffsetTracker()
    if taken is not None:
        tracker.take(taken)
    with pytest.raises(ValueError, match="never taken"):
        tracker.done((taken or 0) + beyond + (taken is not None))
