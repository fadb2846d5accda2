"""A worker's inner loop under a load, timed by parts: the same scheduler, engine, text and events, and no log.

One turn is what `gpu_consumers/worker.py` does in one: take what came, plan, execute, give each token to its
generation, write. Events are made and encoded, and then thrown away, so "write" is what a worker pays for them but for
the producer's hand-over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_consumers.engine import Engine
from gpu_consumers.engines.parts import Around, Instrumented, uninstrumented
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.generation import Generation, Model
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.profiling.costs import ModelCosts, StepNeeds, needs_of
from gpu_consumers.profiling.load import Arrivals, Load, Shape
from gpu_consumers.profiling.step import PartTimer, StepMeasured
from gpu_consumers.scheduler import Scheduler
from schemas.codec import Codec
from schemas.events import RequestRouted

_TENANT = "profile"
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop: no step begins after so many seconds, steps, or finished requests."""

    seconds: float
    steps: int | None = None
    requests: int | None = None


class LoadLoop:
    """Owned by one thread, as a worker's loop is. The engine must be warm and without sequences."""

    def __init__(
        self,
        engine: Engine,
        model: Model,
        load: Load,
        *,
        clock: Callable[[], float],
        wait: Callable[[float], object],
        costs: ModelCosts | None = None,
        synchronize: Callable[[], None] = lambda: None,
    ) -> None:
        """model: its tokenizer; no token ends an answer here. clock: seconds. wait: that many of them.
        costs: what steps need (None: not known). synchronize: waits for the device.
        """
        self._engine = engine
        self._model = Model(model.tokenizer, frozenset())
        self._arrivals = Arrivals(load, engine.info.vocabulary_size)
        self._load = load
        self._clock = clock
        self._wait = wait
        self._costs = costs
        self._timer = PartTimer(clock, synchronize)
        self._codec = Codec()
        self._scheduler = Scheduler(engine.info, cached_tokens=engine.cached_tokens)
        self._generations: dict[str, Generation] = {}
        self._arrived = 0
        self.finished = 0
        self.written_bytes = 0
        self._began = clock()

    def run(self, until: Until, around: Around | None = None) -> list[StepMeasured]:
        """The turns that there was time for. around: what the engine's parts run inside (None: they are timed).

        Raises EngineFailedError when the engine is unusable, or can't run one of the requests.
        """
        if isinstance(self._engine, Instrumented):
            self._engine.instrument(around or self._timer.around)
        began, finished = self._clock(), self.finished
        steps: list[StepMeasured] = []
        try:
            while (
                self._clock() - began < until.seconds
                and (until.steps is None or len(steps) < until.steps)
                and (until.requests is None or self.finished - finished < until.requests)
            ):
                steps.append(self._turn(began + until.seconds))
        finally:
            if isinstance(self._engine, Instrumented):
                self._engine.instrument(uninstrumented)
        return steps

    def close(self) -> None:
        """Take back what is unfinished."""
        for request_id in self._generations:
            self._scheduler.remove(request_id)
        self._generations.clear()
        self._engine.execute(self._scheduler.next_step(self._now_us()).plan)

    def _turn(self, until: float) -> StepMeasured:
        started = self._clock()
        self._take_arrivals()
        if not self._generations:
            self._wait(max(0.0, min(self._began + self._arrivals.next_at, until) - self._clock()))
            self._take_arrivals()
        ready = self._clock()
        plan = self._scheduler.next_step(self._now_us()).plan
        planned = self._clock()
        result = self._execute(plan)
        executed = self._clock()
        outcome = self._scheduler.take(result)
        if outcome.failures:
            raise EngineFailedError(f"the engine can't run the load: {next(iter(outcome.failures.values()))}")
        slots, waiting = self._scheduler.running_count, self._scheduler.waiting_count
        taken = self._clock()
        for request_id, token_id in outcome.tokens.items():
            self._write(self._generations[request_id], token_id)
        written = self._clock()
        parts = self._timer.taken()
        forward = parts.get("forward", 0.0 if parts else executed - planned)
        sample = parts.get("sample", 0.0)
        return StepMeasured(
            wait=ready - started,
            schedule=(planned - ready) + (taken - executed),
            build=max(0.0, executed - planned - forward - sample),
            forward=forward,
            sample=sample,
            write=written - taken,
            prompt_tokens=sum(len(chunk.token_ids) for chunk in plan.prefills),
            output_tokens=len(outcome.tokens),
            slots=slots,
            waiting=waiting,
            needs=StepNeeds() if self._costs is None else needs_of(plan, self._costs),
        )

    def _execute(self, plan: StepPlan) -> StepResult:
        try:
            return self._engine.execute(plan)
        except Exception as error:
            name = self._engine.info.name
            raise EngineFailedError(f"the engine {name} failed with {type(error).__name__}: {error}") from error

    def _take_arrivals(self) -> None:
        for shape in self._arrivals.due(self._clock() - self._began, len(self._generations)):
            generation = Generation(
                _order(str(self._arrived), shape, self._load, self._now_us()), self._model,
                worker="profile", pulled_at_us=self._now_us(),
            )  # fmt: skip
            self._arrived += 1
            self._generations[generation.request_id] = generation
            self._scheduler.add(generation.sequence)

    def _write(self, generation: Generation, token_id: int) -> None:
        now_us = self._now_us()
        generation.add_token(token_id, now_us)
        event = generation.unwritten()
        if event is not None:
            self.written_bytes += len(self._codec.encode(event))
            generation.written()
        if generation.finish_reason is not None:
            self.written_bytes += len(self._codec.encode(generation.finished(generation.finish_reason, now_us)))
            self._scheduler.remove(generation.request_id)
            del self._generations[generation.request_id]
            self.finished += 1

    def _now_us(self) -> int:
        return int(self._clock() * _US)


def _order(request_id: str, shape: Shape, load: Load, now_us: int) -> RequestRouted:
    return RequestRouted(
        request_id=request_id,
        tenant=_TENANT,
        at_us=now_us,
        admitted_at_us=now_us,
        model=_TENANT,
        model_version=_TENANT,
        deployment=_TENANT,
        reason=_TENANT,
        prompt_token_ids=shape.prompt_token_ids,
        max_output_tokens=shape.output_tokens,
        temperature=load.temperature,
        top_p=1.0,
        top_k=0,
        seed=load.seed,
        stop=(),
    )
