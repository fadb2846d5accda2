import pytest

from gpu_consumers.forecast import Forecast
from gpu_consumers.sequence import Sequence
from gpu_consumers.step_costs import StepCosts

COSTS = StepCosts(step_us=10, decode_us=1, prefill_token_us=2, mean_output_tokens=5)


def sequence(deadline_at_us: int | None, *, output_tokens: int = 100, resumed: int = 0) -> Sequence:
    """With a prefix of 4 tokens."""
    return Sequence("r", "t", (1,) * 4, 4 + output_tokens, resumed_tokens=resumed, deadline_at_us=deadline_at_us)


def forecast(costs: StepCosts | None = COSTS, now_us: int = 0, running: int = 0) -> Forecast:
    made = Forecast(costs)
    made.look(now_us, running)
    return made


def test_an_answer_takes_its_prefill_and_a_step_for_each_token_that_answers_have() -> None:
    assert forecast().can_finish(sequence(8 + 5 * 11))
    assert not forecast().can_finish(sequence(8 + 5 * 11 - 1))
    assert not forecast(now_us=1).can_finish(sequence(8 + 5 * 11))
    assert not forecast(running=1).can_finish(sequence(8 + 5 * 11))


def test_an_answer_is_no_longer_than_allowed_and_what_was_made_is_made() -> None:
    assert forecast().can_finish(sequence(8 + 2 * 11, output_tokens=2))
    assert forecast().can_finish(sequence(8 + 2 * 11, resumed=3))
    assert forecast().can_finish(sequence(8 + 11, resumed=9)), "a token more at the least"
    assert not forecast().can_finish(sequence(8 + 11 - 1, resumed=9))


def test_an_answer_is_taken_to_be_as_long_as_those_of_its_tenant() -> None:
    found = forecast()
    found.lengths.ended("t", 20)
    found.lengths.ended("other", 1)
    assert found.can_finish(sequence(8 + 20 * 11))
    assert not found.can_finish(sequence(8 + 20 * 11 - 1))


def test_without_a_deadline_or_without_costs_everything_can_finish() -> None:
    assert forecast().can_finish(sequence(None))
    assert forecast(None).can_finish(sequence(0))


def test_steps_that_took_long_lately_make_deadlines_hopeless_and_pauses_without_a_step_dont() -> None:
    found = forecast()
    found.look(1_000_000, 0)
    deadline = sequence(1_000_000 + 8 + 5 * 11)
    assert found.can_finish(deadline)
    now_us = 0
    for _ in range(100):
        found.begins(now_us)
        now_us += 1_000
        found.look(now_us, 0)
    assert not found.can_finish(sequence(now_us + 4_000))
    assert found.can_finish(sequence(now_us + 5_008))


def test_a_bite_takes_three_quarters_of_a_step_and_is_never_tiny() -> None:
    costs = StepCosts(step_us=1_000, decode_us=10, prefill_token_us=5)
    assert costs.bite_tokens(100) == 300
    assert costs.bite_tokens(0) == costs.bite_tokens(1) == 151
    assert StepCosts(1, 0, 100).bite_tokens(1) == 16


def test_prefill_that_costs_nothing_needs_no_bites() -> None:
    assert StepCosts(1, 1, 0).bite_tokens(4) >= 1_000_000


def test_a_step_costs_what_is_in_it() -> None:
    assert COSTS.duration_us(prefill_tokens=7, decodes=3) == pytest.approx(10 + 3 + 14)
