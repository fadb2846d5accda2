from __future__ import annotations

import pytest

from gpu_consumers.profiling.roofline import points, roof
from tests.unit.gpu_consumers.profiling.numbers import MACHINE, step


def test_the_roof_rises_with_intensity_up_to_the_ridge() -> None:
    assert MACHINE.ridge == 10.0
    assert [roof(MACHINE, intensity) for intensity in (1, 5, 10, 100)] == [1e11, 5e11, 1e12, 1e12]


def test_steps_that_prefill_are_a_point_of_their_own() -> None:
    decode, prefill = points([
        step(forward=20, memory=10, compute=1), step(forward=20, memory=10, compute=3),
        step(forward=50, memory=5, compute=25, prompt_tokens=9),
    ])  # fmt: skip
    assert (decode.label, prefill.label) == ("steps that decode", "steps that prefill")
    assert (decode.intensity, decode.flops) == pytest.approx((2.0, 1e11))
    assert (prefill.intensity, prefill.flops) == pytest.approx((50.0, 5e11))
    assert (decode.seconds, prefill.seconds) == pytest.approx((0.04, 0.05))


def test_steps_of_which_nothing_is_known_are_no_point() -> None:
    assert points([step(forward=20), step(wait=5)]) == []
