"""Which requests are short, and when there is nothing left to wait for."""

from __future__ import annotations

from gpu_consumers.drain import Drain, Unfinished
from gpu_consumers.step_costs import StepCosts

COSTS = StepCosts(step_us=9_000.0, decode_us=500.0, prefill_token_us=100.0)  # two decode in 10 ms
DRAIN = Drain(until_s=102.0, step_tokens=256)


def test_an_answer_whose_steps_fit_into_the_time_is_short() -> None:
    fits, too_long = Unfinished(0, 200), Unfinished(0, 201)
    batch = [fits, too_long]
    assert DRAIN.is_short(fits, batch, COSTS, now_s=100.0)
    assert not DRAIN.is_short(too_long, batch, COSTS, now_s=100.0)


def test_what_was_short_is_not_so_any_more_when_time_has_passed_without_steps() -> None:
    request = Unfinished(0, 100)
    assert DRAIN.is_short(request, [request, request], COSTS, now_s=101.0)
    assert not DRAIN.is_short(request, [request, request], COSTS, now_s=101.01)


def test_a_prefill_delays_its_own_answer_and_those_of_its_neighbours() -> None:
    decoding, prefilling = Unfinished(0, 199), Unfinished(1_000, 1)
    # 100 ms of prefill tokens: 190 decodes of 10 ms are left, and 4 steps with a chunk and the last with its token
    assert not DRAIN.is_short(decoding, [decoding, prefilling], COSTS, now_s=100.0)
    assert DRAIN.is_short(Unfinished(0, 190), [decoding, prefilling], COSTS, now_s=100.0)
    assert DRAIN.is_short(prefilling, [decoding, prefilling], COSTS, now_s=101.85)
    assert not DRAIN.is_short(prefilling, [decoding, prefilling], COSTS, now_s=101.86)


def test_a_drain_goes_on_while_somebody_is_short_and_is_over_when_nobody_is() -> None:
    short, long = Unfinished(0, 5), Unfinished(0, 10_000)
    assert not DRAIN.is_over([long, short], COSTS, now_s=100.0)
    assert DRAIN.is_over([long, long], COSTS, now_s=100.0)
    assert DRAIN.is_over([], COSTS, now_s=100.0)


def test_a_drain_is_over_at_its_end_whatever_steps_cost() -> None:
    nothing = StepCosts(0.0, 0.0, 0.0)
    assert not DRAIN.is_over([Unfinished(0, 1)], nothing, now_s=101.999)
    assert DRAIN.is_over([Unfinished(0, 1)], nothing, now_s=102.0)
