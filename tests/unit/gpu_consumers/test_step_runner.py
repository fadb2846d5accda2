from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan, StepResult
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.step_runner import StepRunner
from gpu_consumers.telemetry import StepStatistics

PREFILL = StepPlan(
    admitted=tuple(Admission(slot, SamplingParams(), 9) for slot in (0, 1)),
    prefills=(PrefillChunk(0, (1, 2, 3), 0, True), PrefillChunk(1, (4, 5), 0, True)),
)


class Scripted(EchoEngine):
    """Steps that do what the test says."""

    def __init__(self, step: Callable[[], StepResult]) -> None:
        super().__init__(slots=2)
        self._step = step

    def execute(self, plan: StepPlan) -> StepResult:
        return self._step()


class World:
    """A runner on a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: StepResult, seconds: float = 0.0) -> None:
        self.now, self.seconds, self._result = 0.0, seconds, result
        monkeypatch.setattr("gpu_consumers.step_runner.monotonic", lambda: self.now)
        self.metrics = WorkerMetrics(deployment="d", worker="w")
        self.runner = StepRunner(Scripted(self._step), self.metrics, StepStatistics(0.0))

    def _step(self) -> StepResult:
        self.now += self.seconds
        return self._result

    def value(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"deployment": "d", "worker": "w"})


def test_what_was_deferred_was_not_prefilled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, StepResult(tokens={0: 7}, deferred=frozenset({1})))
    world.runner.run(PREFILL, unfinished_requests=2)
    assert world.value("headrace:prompt_tokens_total") == 3
    assert world.value("headrace:generation_tokens_total") == 1
    assert world.value("headrace:engine_steps_deferred_total") == 1


def test_steps_are_taken_to_cost_what_was_measured_and_else_what_the_newest_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, StepResult())
    for world.seconds in [1.0] * 60 + [0.01] * 60:
        world.runner.run(StepPlan(decodes=(Decode(0, 1, 3),)), unfinished_requests=1)
    assert world.runner.costs.duration_us(0, 4) == pytest.approx(10_000, rel=0.05)
    world.runner.measured = StepCosts(5_000.0, 100.0, 0.0)
    assert world.runner.costs.duration_us(0, 4) == 5_400


def test_an_engine_that_breaks_is_named_with_what_it_cuts_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> StepResult:
        raise RuntimeError("no device")

    runner = StepRunner(Scripted(breaks), WorkerMetrics(deployment="d", worker="w"), StepStatistics(0.0))
    with pytest.raises(EngineFailedError, match="echo failed with RuntimeError: no device; 3 unfinished requests go"):
        runner.run(PREFILL, unfinished_requests=3)
