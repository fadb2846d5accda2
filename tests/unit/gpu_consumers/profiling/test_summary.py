from __future__ import annotations

import pytest

from gpu_consumers.profiling.summary import summarize
from tests.unit.gpu_consumers.profiling.numbers import step


def test_steps_are_summed_by_part_and_averaged_by_turn() -> None:
    summary = summarize([step(wait=10, forward=20, memory=1, compute=2, slots=2), step(forward=30, write=10, slots=4)])
    assert summary.steps == 2
    assert summary.seconds == pytest.approx(0.07)
    assert summary.parts["forward"] == pytest.approx(0.05)
    assert (summary.mean_slots, summary.output_tokens) == (3.0, 6)
    assert summary.output_tokens_per_second == pytest.approx(6 / 0.07)
    assert summary.bytes == pytest.approx(1e8)
    assert summary.flops == pytest.approx(2e9)


def test_no_steps_are_no_summary() -> None:
    with pytest.raises(ValueError, match="no steps"):
        summarize([])
