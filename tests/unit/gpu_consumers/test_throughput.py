"""The throughput curve, on engines whose speed is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.throughput import batch_sizes, contexts, measure_throughput, step_costs
from schemas.events import ThroughputPoint

INFO = EchoEngine().info


class TimedEngine(EchoEngine):
    """An echo engine on a clock of its own: a step takes what its tokens cost."""

    def __init__(
        self, *, prompt_token: float = 0.001, decode: float = 0.01, row: float = 0.0, slots: int = 4, kv_blocks: int = 0
    ) -> None:
        super().__init__(slots=slots, max_context_tokens=512, max_step_tokens=64)
        self._info = replace(self._info, kv_blocks=kv_blocks)
        self.now = 0.0
        self.plans: list[StepPlan] = []
        self.held: set[int] = set()
        self._costs = (prompt_token, decode, row)

    def clock(self) -> float:
        return self.now

    def execute(self, plan: StepPlan) -> StepResult:
        prompt_token, decode, row = self._costs
        self.plans.append(plan)
        self.held = (self.held - set(plan.released)) | {admission.slot for admission in plan.admitted}
        self.now += prompt_token * sum(len(chunk.token_ids) for chunk in plan.prefills)
        self.now += decode * bool(plan.decodes) + row * len(plan.decodes)
        return super().execute(plan)


def curve(engine: TimedEngine, seconds: float) -> dict[tuple[int, int], float]:
    points = measure_throughput(engine, budget_seconds=seconds, clock=engine.clock).points
    assert points == tuple(sorted(points, key=lambda p: (p.batch_size, p.context_tokens)))
    return {(p.batch_size, p.context_tokens): round(p.output_tokens_per_second, 6) for p in points}


def test_the_curve_tells_the_speed_of_every_batch_size_and_context() -> None:
    engine = TimedEngine(decode=0.010, row=0.005)
    seconds = {1: 0.015, 2: 0.020, 4: 0.030}
    expected = {(size, context): round(size / seconds[size], 6) for size in (1, 2, 4) for context in (32, 256)}
    assert curve(engine, 1000.0) == expected


def test_all_slots_are_free_afterwards() -> None:
    engine = TimedEngine()
    assert curve(engine, 1000.0)
    assert engine.held == set()
    with pytest.raises(KeyError):
        engine._slots[0]


def test_no_step_begins_when_the_budget_is_used_and_the_slots_are_free_all_the_same() -> None:
    whole = curve(TimedEngine(), 1000.0)
    for budget in (0.02, 0.1, 0.3, 0.5, 1.0):
        engine = TimedEngine()
        part = curve(engine, budget)
        assert part.items() <= whole.items()
        assert len(part) < len(whole)
        assert engine.now <= budget + 0.064 + 0.01, "one step of 64 prompt tokens and a decode may be under way"
        assert engine.held == set()


@pytest.mark.parametrize("decode", [0.001, 0.1, 10.0])
def test_half_as_much_again_as_it_takes_is_time_enough_for_the_whole_curve(decode: float) -> None:
    unhurried = TimedEngine(decode=decode)
    whole = curve(unhurried, 1e9)
    hurried = TimedEngine(decode=decode)
    assert curve(hurried, 1.5 * unhurried.now) == whole


def test_what_there_is_no_time_for_is_not_begun() -> None:
    engine = TimedEngine(prompt_token=0.001, decode=0.01)
    # 32 ms prefill one, 30 ms decode it, likewise for two; two more would take 64 ms and 30 ms.
    assert set(curve(engine, 0.2)) == {(1, 32), (2, 32)}
    assert engine.now < 0.2


def test_no_budget_is_no_curve_and_no_step() -> None:
    engine = TimedEngine()
    assert curve(engine, 0.0) == {}
    assert engine.plans == []


def test_an_echo_engine_is_as_fast_as_it_is_told_to_be() -> None:
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    engine = EchoEngine(slots=3, max_context_tokens=60, tokens_per_second=50.0, clock=lambda: now, wait=wait)
    points = measure_throughput(engine, budget_seconds=60.0, clock=lambda: now).points
    assert [(p.batch_size, p.context_tokens, round(p.output_tokens_per_second)) for p in points] == [
        (1, 30, 50),
        (2, 30, 100),
        (3, 30, 150),
    ]


def test_a_pause_between_two_steps_makes_no_engine_fast() -> None:
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Interrupted(EchoEngine):
        """Its machine is busy with something else after each step, for longer than a token takes."""

        def execute(self, plan: StepPlan) -> StepResult:
            nonlocal now
            result = super().execute(plan)
            now += 0.03
            return result

    engine = Interrupted(slots=1, max_context_tokens=60, tokens_per_second=50.0, clock=lambda: now, wait=wait)
    (point,) = measure_throughput(engine, budget_seconds=60.0, clock=lambda: now).points
    assert point.output_tokens_per_second <= 50.0


class Failing(TimedEngine):
    """Fails every sequence that decodes beside another one."""

    def execute(self, plan: StepPlan) -> StepResult:
        result = super().execute(plan)
        if len(plan.decodes) > 1:
            return StepResult({}, {decode.slot: "out of luck" for decode in plan.decodes})
        return result


def test_a_sequence_that_the_engine_refuses_ends_the_curve_where_it_is() -> None:
    engine = Failing()
    assert set(curve(engine, 1000.0)) == {(1, 32), (1, 256)}
    assert engine.held == set()


def test_a_batch_that_the_memory_does_not_hold_ends_the_curve_of_its_context() -> None:
    engine = TimedEngine(kv_blocks=13)
    assert list(curve(engine, 1000.0)) == [(1, 32), (1, 256), (2, 32), (2, 256), (4, 32)]
    assert engine.now < 10
    assert engine.held == set()


def test_a_step_that_takes_no_time_at_all_is_no_division_by_zero() -> None:
    points = measure_throughput(TimedEngine(), budget_seconds=1.0, clock=lambda: 0.0).points
    assert all(isinstance(point, ThroughputPoint) and point.output_tokens_per_second > 0 for point in points)


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [1]), (40, [20]), (64, [32]), (512, [32, 256]), (8192, [32, 256, 2048, 4096])]
)
def test_contexts_reach_half_of_what_a_slot_holds(most: int, expected: list[int]) -> None:
    assert contexts(replace(INFO, max_context_tokens=most)) == expected


@pytest.mark.parametrize(("slots", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_batch_sizes_double_up_to_all_slots(slots: int, expected: list[int]) -> None:
    info: EngineInfo = replace(INFO, slots=slots)
    assert batch_sizes(info) == expected


def test_what_a_step_costs_is_told_to_the_scheduler() -> None:
    engine = TimedEngine(prompt_token=0.001, decode=0.010, row=0.005)
    costs = measure_throughput(engine, budget_seconds=1000.0, clock=engine.clock).costs
    assert costs is not None
    assert (round(costs.step_us), round(costs.decode_us)) == (10_000, 5_000)
    assert 1_000 <= costs.prefill_token_us < 1_500  # what decodes beside it is in it


def test_one_batch_size_does_not_tell_what_a_step_costs() -> None:
    engine = TimedEngine(slots=1)
    assert measure_throughput(engine, budget_seconds=1000.0, clock=engine.clock).costs is None
    assert step_costs([], 0.001) is None
    points = [ThroughputPoint(batch_size=size, context_tokens=32, output_tokens_per_second=50.0) for size in (1, 4)]
    assert step_costs(points, 0.0) is None, "no prompt was timed"
