"""In whatever order records are done and read again, what may be committed rises, and stays behind what is open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.progress import Progress

P = ("validated", 0)


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=12))
def test_the_watermark_rises_and_stays_behind_what_is_open(order: list[int], reread: list[int]) -> None:
    progress = Progress()
    for offset in range(12):
        assert progress.take(P, offset)
    finished: set[int] = set()
    again = iter(reread)
    for offset in order:
        known = next(again, None)
        if known is not None:
            assert not progress.take(P, known)
        progress.done(P, offset)
        finished.add(offset)
        assert progress.watermarks() == {P: next(n for n in range(13) if n not in finished)}
        assert progress.open_count == 12 - len(finished)
