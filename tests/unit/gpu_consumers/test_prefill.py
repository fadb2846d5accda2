from gpu_consumers.prefill import Bites, share_out
from gpu_consumers.running import Running
from gpu_consumers.sequence import Sequence
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.waiting_queue import Turn


def prefilling(tenant: str, tokens: int, rank: int = 0) -> Running:
    return Running(Turn(Sequence(tenant, tenant, (1,) * tokens, tokens + 1), rank, 1), 0, 0, 0)


def parts(batch: list[Running], budget: int, above: set[str], bite: int) -> list[tuple[str, int]]:
    return [(running.tenant, tokens) for running, tokens in share_out(batch, budget, above, bite)]


def test_the_budget_goes_by_class_and_then_by_admission() -> None:
    batch = [prefilling("a", 10), prefilling("b", 10), prefilling("c", 4, rank=-1)]
    assert parts(batch, 20, set(), 0) == [("c", 4), ("a", 10), ("b", 6)]


def test_those_above_their_share_have_one_bite_together_and_the_rest_goes_to_the_others() -> None:
    batch = [prefilling("a", 3), prefilling("a", 30), prefilling("b", 30)]
    assert parts(batch, 20, {"a"}, 5) == [("a", 3), ("a", 2), ("b", 15)]
    assert parts(batch, 20, {"a"}, 0) == [("b", 20)]


def test_a_bite_that_is_not_wanted_is_left_to_the_others() -> None:
    assert parts([prefilling("a", 2), prefilling("b", 30)], 20, {"a"}, 8) == [("a", 2), ("b", 18)]
    assert parts([prefilling("a", 30)], 4, {"a"}, 8) == [("a", 4)]


def test_a_bite_is_skipped_three_times_in_a_row_for_others_and_then_it_is_due() -> None:
    bites = Bites(64)
    assert [bites.next(None, 1, gives_way=True) for _ in range(5)] == [0, 0, 0, 8, 0]
    assert bites.next(None, 1, gives_way=False) == 8
    assert [bites.next(None, 1, gives_way=True) for _ in range(4)] == [0, 0, 0, 8]


def test_a_bite_is_as_large_as_steps_cost_and_an_eighth_of_a_step_without_costs() -> None:
    assert Bites(64).tokens(None, 4) == 8
    assert Bites(4).tokens(None, 4) == 1
    assert Bites(64).tokens(StepCosts(100, 0, 1), 4) == 75
