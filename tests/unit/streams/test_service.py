"""The watch over partitions that nobody takes from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from streams.errors import StageStuck
from streams.progress import Position, Progress
from streams.service import LagWatch
from streams.stage import Stage

P: Position = ("validated", 1)


class Watched:
    """A stage with one partition that the test writes to and takes from, under a watch with a clock of the test's."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.watch = LagWatch(stuck_after_s=30.0)

    def look(self, now_s: float, *, behind: int) -> None:
        stage = cast(Stage, SimpleNamespace(name="decide", progress=self.progress))
        self.watch.look(stage, {P: behind}, now_s=now_s)


def test_a_partition_that_waits_too_long_is_stuck() -> None:
    watched = Watched()
    watched.look(0, behind=3)
    watched.look(30, behind=3)

    with pytest.raises(StageStuck, match=r"decide: 3 records wait in validated/1 at offset 0"):
        watched.look(31, behind=3)


def test_a_slow_partition_is_not_stuck() -> None:
    watched = Watched()
    for second in range(0, 300, 20):
        watched.look(second, behind=3)
        watched.progress.take(P, second)


def test_an_idle_partition_is_not_stuck_and_has_its_whole_time_when_work_comes() -> None:
    watched = Watched()
    watched.look(0, behind=0)
    watched.look(100, behind=0)
    watched.look(120, behind=2)

    with pytest.raises(StageStuck):
        watched.look(131, behind=2)
