from __future__ import annotations

from statistics import mean

from gpu_consumers.engine import EngineInfo
from gpu_consumers.profiling.load import Arrivals, Load, why_not_loadable


def info(context: int) -> EngineInfo:
    return EngineInfo("test", 4, context, 64, vocabulary_size=50, eos_token_ids=frozenset())


def test_in_a_closed_loop_each_that_leaves_is_followed_by_another() -> None:
    arrivals = Arrivals(Load(concurrency=5), 50)
    assert len(arrivals.due(0.0, 0)) == 5
    assert arrivals.due(9.0, 5) == []
    assert len(arrivals.due(9.0, 3)) == 2
    assert arrivals.next_at == float("inf")


def test_in_an_open_loop_they_come_at_their_rate_whoever_is_there() -> None:
    arrivals = Arrivals(Load(rate=10.0), 50)
    came = [len(arrivals.due(second, 99)) for second in range(100)]
    assert came[0] == 1, "the first comes at once"
    assert 8.5 < mean(came[1:]) < 11.5
    assert 99.0 < arrivals.next_at < 101.0


def test_lengths_vary_around_their_mean_and_ids_are_of_the_vocabulary() -> None:
    shapes = Arrivals(Load(prompt_tokens=20, output_tokens=8, concurrency=400), 50).due(0.0, 0)
    assert {len(shape.prompt_token_ids) for shape in shapes} == set(range(10, 31))
    assert {shape.output_tokens for shape in shapes} == set(range(4, 13))
    assert {token for shape in shapes for token in shape.prompt_token_ids} == set(range(50))


def test_equal_loads_are_equal_to_the_token() -> None:
    first, second = (Arrivals(Load(rate=3.0), 50).due(5.0, 0) for _ in range(2))
    assert first == second


def test_requests_of_one_token_are_requests() -> None:
    [shape] = Arrivals(Load(prompt_tokens=1, output_tokens=1, concurrency=1), 50).due(0.0, 0)
    assert (len(shape.prompt_token_ids), shape.output_tokens) == (1, 1)


def test_a_load_that_does_not_fit_into_a_slot_is_refused_with_what_to_change() -> None:
    load = Load(prompt_tokens=100, output_tokens=20)
    assert load.longest_tokens == 180
    assert why_not_loadable(load, info(180)) is None
    assert "--prompt-tokens" in str(why_not_loadable(load, info(179)))
