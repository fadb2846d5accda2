"""Runs the steps of an engine, and keeps account of what they take."""

from __future__ import annotations

from eventlog.clock import monotonic
from gpu_consumers.engine import Engine
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.telemetry import StepStatistics

_STEPS_IN_MEAN = 8


class StepRunner:
    """Owned by the engine loop. measured: what steps were measured to take; None: nobody has measured."""

    def __init__(self, engine: Engine, metrics: WorkerMetrics, statistics: StepStatistics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._statistics = statistics
        self._mean_us = 0.0  # the newest count most
        self.measured: StepCosts | None = None

    @property
    def costs(self) -> StepCosts:
        """What was measured; without that every step is taken to be like the newest ones."""
        return self.measured or StepCosts(self._mean_us, 0.0, 0.0)

    def run(self, plan: StepPlan, *, unfinished_requests: int) -> StepResult:
        """Raises EngineFailedError, which tells how many requests are cut off, when the engine is unusable."""
        began = monotonic()
        try:
            result = self._engine.execute(plan)
        except Exception as error:
            raise EngineFailedError(
                f"the engine {self._engine.info.name} failed with {type(error).__name__}: {error}; "
                f"{unfinished_requests} unfinished requests go to the next worker"
            ) from error
        seconds = monotonic() - began
        self._mean_us += (seconds * 1e6 - self._mean_us) / _STEPS_IN_MEAN
        prompt_tokens = sum(len(chunk.token_ids) for chunk in plan.prefills if chunk.slot not in result.deferred)
        self._metrics.steps.inc()
        self._metrics.deferred_steps.inc(bool(result.deferred))
        self._metrics.step_seconds.observe(seconds)
        self._metrics.prompt_tokens.inc(prompt_tokens)
        self._metrics.generation_tokens.inc(len(result.tokens))
        if prompt_tokens or plan.decodes:  # else it only took slots back
            self._statistics.add(seconds, prompt_tokens, len(result.tokens))
        return result
