from __future__ import annotations

import pytest

from gpu_consumers.profiling.step import StepMeasured
from gpu_consumers.profiling.verdict import Bound, judge
from tests.unit.gpu_consumers.profiling.numbers import MACHINE, step


@pytest.mark.parametrize(
    ("measured", "bound", "title"),
    [
        (step(wait=60, forward=20, memory=15, compute=1), Bound.INPUT, "input-bound"),
        (step(schedule=20, build=5, write=5, forward=20, memory=15, compute=1), Bound.SCHEDULER, "scheduler-bound"),
        (step(write=30, forward=20, memory=15, compute=1), Bound.SCHEDULER, "scheduler-bound"),
        (step(build=30, forward=20, memory=15, compute=1), Bound.SCHEDULER, "scheduler-bound"),
        (step(sample=30, forward=20, memory=15, compute=1), Bound.SAMPLING, "sampling-bound"),
        (step(forward=20, memory=18, compute=2), Bound.MEMORY, "memory-bound"),
        (step(forward=20, memory=2, compute=18), Bound.COMPUTE, "compute-bound"),
        (step(forward=20, memory=2, compute=1), Bound.OVERHEAD, "overhead-bound"),
        (step(forward=20, memory=10, compute=9.5), Bound.OVERHEAD, "overhead-bound"),
        (step(forward=20, memory=18, compute=17), Bound.MEMORY, "between memory and compute"),
        (step(forward=20, memory=17, compute=18), Bound.COMPUTE, "between compute and memory"),
        (step(wait=20, forward=19, memory=18.5, compute=0.1), Bound.INPUT, "between input and memory"),
        (step(schedule=20, sample=18), Bound.SCHEDULER, "between scheduler and sampling"),
    ],
)
def test_the_verdict_is_what_takes_most_of_the_time_and_names_what_takes_nearly_as_much(
    measured: StepMeasured, bound: Bound, title: str
) -> None:
    verdict = judge([measured], MACHINE)
    assert (verdict.bound, verdict.title) == (bound, title)


def test_shares_add_up_to_all_of_the_time() -> None:
    steps = [step(wait=3, schedule=1, build=2, forward=20, sample=4, write=1, memory=9, compute=3), step(forward=5)]
    shares = judge(steps, MACHINE).shares
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares[Bound.INPUT] == pytest.approx(3 / 36)
    assert shares[Bound.SCHEDULER] == pytest.approx(4 / 36)
    assert shares[Bound.MEMORY] == pytest.approx(9 * 9 / 12 / 36)
    assert shares[Bound.COMPUTE] == pytest.approx(9 * 3 / 12 / 36)
    assert shares[Bound.OVERHEAD] == pytest.approx((11 + 5) / 36)


def test_prefill_and_decode_steps_are_split_each_by_itself() -> None:
    """Their sums would be balanced, and no step is."""
    verdict = judge([step(forward=10, memory=10, compute=0.1), step(forward=10, memory=0.1, compute=10)], MACHINE)
    assert verdict.floor == pytest.approx(1.0)
    assert verdict.title == "between memory and compute"
    assert (verdict.memory_seconds, verdict.compute_seconds) == pytest.approx((0.0101, 0.0101))


def test_a_pass_that_seems_faster_than_its_floor_is_all_floor() -> None:
    verdict = judge([step(forward=10, memory=12)], MACHINE)
    assert (verdict.bound, verdict.floor) == (Bound.MEMORY, 1.0)


def test_where_nothing_is_known_of_the_model_its_passes_are_the_engines() -> None:
    verdict = judge([step(forward=10, schedule=1)], None)
    assert (verdict.title, verdict.floor) == ("engine-bound", None)


def test_steps_without_time_have_no_verdict() -> None:
    with pytest.raises(ValueError, match="no time"):
        judge([step()], MACHINE)
