"""Durations as people write them."""

from __future__ import annotations

import click
import pytest

from infra.cli.durations import Duration


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3_600), ("7d", 604_800)])
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: int) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "1.5h", "-1h", "1 h", "1w"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="90s, 15m, 1h or 7d"):
        Duration().convert(text, None, None)
