from __future__ import annotations

import pytest

from gpu_consumers.profiling.step import PartTimer


def test_each_part_has_its_time_with_that_of_the_device_in_it() -> None:
    now, waits = [0.0], list[float]()

    def synchronize() -> None:
        waits.append(now[0])
        now[0] += 0.5

    timer = PartTimer(lambda: now[0], synchronize)
    for seconds in (1.0, 2.0):
        with timer.around("forward"):
            now[0] += seconds
    with timer.around("sample"):
        now[0] += 4.0
    assert timer.taken() == pytest.approx({"forward": 4.0, "sample": 4.5})
    assert timer.taken() == {}
    assert len(waits) == 6
