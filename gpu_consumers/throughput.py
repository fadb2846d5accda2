"""What an engine can do on this machine: its throughput curve, measured through the plans that a scheduler makes.

For each length of context, sequences join until 1, 2, 4, ... decode side by side, as they would in service; at each
of these sizes a few decode steps are timed. Short contexts come first and cost least, so a small budget gives the
front of the curve and a large one all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from gpu_consumers.engine import Engine, EngineInfo
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence as TokenSequence
from gpu_consumers.step_costs import StepCosts
from schemas.events import ThroughputPoint

DECODE_STEPS = 3
"""How many are timed for a point; it is their median that counts."""

_FIRST_CONTEXT_TOKENS = 32
_CONTEXT_GROWTH = 8
_LEAST_SECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class Throughput:
    """What was measured.

    points: the curve by batch size, then by context; empty if there was no time for any.
    costs: what a step costs the scheduler; None if too little was measured to tell.
    """

    points: tuple[ThroughputPoint, ...] = ()
    costs: StepCosts | None = None


def measure_throughput(engine: Engine, *, budget_seconds: float, clock: Callable[[], float]) -> Throughput:
    """The engine must be warm and without sequences, and is so afterwards.

    budget_seconds: no step begins later than this, but for the one that frees the slots; what is not measured by
        then is not in the curve.
    clock: seconds.
    """
    if budget_seconds <= 0:
        return Throughput()
    trial = _Trial(engine, clock, clock() + budget_seconds)
    points = [point for context_tokens in contexts(engine.info) for point in trial.points(context_tokens)]
    points.sort(key=lambda point: (point.batch_size, point.context_tokens))
    return Throughput(tuple(points), step_costs(points, trial.seconds_of_prompt_token))


def step_costs(points: Sequence[ThroughputPoint], seconds_of_prompt_token: float) -> StepCosts | None:
    """A line through the times of the smallest and the largest batch with the shortest context; None without both."""
    shortest = min((point.context_tokens for point in points), default=0)
    steps = {
        p.batch_size: 1e6 * p.batch_size / p.output_tokens_per_second for p in points if p.context_tokens == shortest
    }
    if len(steps) < 2 or seconds_of_prompt_token <= 0:
        return None
    small, large = min(steps), max(steps)
    decode_us = max(0.0, (steps[large] - steps[small]) / (large - small))
    return StepCosts(max(0.0, steps[small] - small * decode_us), decode_us, 1e6 * seconds_of_prompt_token)


def contexts(info: EngineInfo) -> list[int]:
    """32, 256, 2048, ... up to half of what a slot holds, and that half: while others join, a sequence goes on."""
    longest = max(1, info.max_context_tokens // 2)
    found, tokens = [longest], _FIRST_CONTEXT_TOKENS
    while tokens < longest:
        found.append(tokens)
        tokens *= _CONTEXT_GROWTH
    return sorted(found)


def batch_sizes(info: EngineInfo) -> list[int]:
    """1, 2, 4, ... and all slots."""
    return sorted({*(1 << power for power in range(info.slots.bit_length())), info.slots})


class _Trial:
    """An engine with a scheduler of its own. What it has learnt of the engine's speed says what is worth beginning."""

    def __init__(self, engine: Engine, clock: Callable[[], float], until: float) -> None:
        self._engine = engine
        self._clock = clock
        self._until = until
        self._scheduler = Scheduler(engine.info)
        self._running: list[str] = []
        self._pending: set[str] = set()  # have no token yet
        self._refused = False
        self._step_ended_at = 0.0
        self.seconds_of_prompt_token = 0.0
        self._seconds_of_decode = 0.0

    def points(self, context_tokens: int) -> list[ThroughputPoint]:
        """Of all batch sizes that there is time for, with contexts of this length."""
        found = []
        for batch_size in batch_sizes(self._engine.info):
            if not self._affords((batch_size - len(self._running)) * context_tokens):
                break
            self._join(batch_size, context_tokens)
            times = self._decode_times()
            if not times:
                break
            self._seconds_of_decode = max(median(times), _LEAST_SECONDS)
            found.append(
                ThroughputPoint(
                    batch_size=batch_size,
                    context_tokens=context_tokens,
                    output_tokens_per_second=batch_size / self._seconds_of_decode,
                )
            )
        self._leave()
        return found

    def _affords(self, prompt_tokens: int) -> bool:
        needed = prompt_tokens * self.seconds_of_prompt_token + DECODE_STEPS * self._seconds_of_decode
        return self._clock() + needed <= self._until

    @property
    def _goes_on(self) -> bool:
        return not self._refused and self._clock() < self._until

    def _join(self, batch_size: int, context_tokens: int) -> None:
        """Prefill as many more as the batch lacks."""
        info = self._engine.info
        for number in range(len(self._running), batch_size):
            prompt = tuple((number + 7 * position) % info.vocabulary_size for position in range(context_tokens))
            self._scheduler.add(TokenSequence(str(number), "", prompt, info.max_context_tokens))
            self._running.append(str(number))
            self._pending.add(str(number))
        began = self._step_ended_at = self._clock()
        prompt_tokens = 0
        while self._pending and self._goes_on:
            prompt_tokens += self._step()[0]
        # Over all of it: the last chunk of a prompt may be one token, which takes a whole step all the same.
        self.seconds_of_prompt_token = (self._step_ended_at - began) / max(1, prompt_tokens)

    def _decode_times(self) -> list[float]:
        """Seconds of up to DECODE_STEPS steps in which the whole batch decodes; none if that was not reached."""
        times: list[float] = []
        while not self._pending and self._goes_on and len(times) < DECODE_STEPS:
            times.append(self._step()[1])
        return [] if self._refused else times

    def _step(self) -> tuple[int, float]:
        """(prompt tokens that it ran, seconds since the end of the step before it).

        What is between two steps counts: an engine that keeps a pace of its own makes up for a pause in the next step.
        """
        step = self._scheduler.next_step(0)
        plan = step.plan
        result = self._engine.execute(plan)
        before, self._step_ended_at = self._step_ended_at, self._clock()
        seconds = self._step_ended_at - before
        outcome = self._scheduler.take(result)
        self._pending -= outcome.tokens.keys()
        # Or its memory is full: somebody waits and none may begin, or had to give way.
        self._refused |= bool(outcome.failures or step.preempted or (self._pending and not plan.prefills))
        return sum(len(chunk.token_ids) for chunk in plan.prefills), seconds

    def _leave(self) -> None:
        for name in self._running:
            self._scheduler.remove(name)
        self._engine.execute(self._scheduler.next_step(0).plan)
        self._scheduler.check_integrity()
        self._running.clear()
        self._pending.clear()
        self._refused = False
