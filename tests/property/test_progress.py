"""In whatever order records are done and read again, acknowledgements come in order, once, never past an open one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.progress import Progress

P = ("validated", 0)


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=12))
def test_acknowledgements_rise_and_stay_behind_what_is_open(order: list[int], reread: list[int]) -> None:
    progress: Progress[int] = Progress()
    for offset in range(12):
        assert progress.take(P, offset, offset)
    acknowledged: list[int] = []
    finished: set[int] = set()
    again = iter(reread)
    for offset in order:
        known = next(again, None)
        if known is not None:
            assert not progress.take(P, known, known)
            assert progress.is_acknowledged(P, known) == (known in acknowledged)
        acknowledged += progress.done(P, offset)
        finished.add(offset)
        assert acknowledged == list(range(len(acknowledged)))
        assert len(acknowledged) == next(n for n in range(13) if n not in finished)
        assert progress.open_count == 12 - len(acknowledged)
