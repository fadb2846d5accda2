from __future__ import annotations

import pytest

from gpu_consumers.comparison.windows import Window, spread, windows


def test_a_text_that_fits_is_one_window() -> None:
    assert windows(10, 10) == (Window(0, 10, 1),)


@pytest.mark.parametrize(("tokens", "size"), [(2, 2), (11, 10), (100, 10), (1000, 7), (33, 32), (17, 3)])
def test_every_token_but_the_first_is_scored_once_and_has_half_a_window_before_it(tokens: int, size: int) -> None:
    found = windows(tokens, size)
    assert [place for w in found for place in range(w.first, w.end)] == list(range(1, tokens))
    assert all(w.begin < w.first < w.end <= tokens and w.end - w.begin <= size for w in found)
    assert all(w.first - w.begin >= min(size // 2, w.first) for w in found)


def test_one_token_leaves_nothing_to_score() -> None:
    assert windows(1, 10) == ()
    with pytest.raises(ValueError, match="windows of 1 tokens"):
        windows(5, 1)


def test_places_are_spread_over_the_whole_range() -> None:
    assert spread(1, 101, 4) == {1, 26, 51, 76}
    assert spread(1, 4, 100) == {1, 2, 3}
    assert spread(1, 4, 0) == frozenset()
