"""A trace through the real scheduler, in virtual time: a step takes what the cost model says, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Final

from gpu_consumers.engine import EngineInfo
from gpu_consumers.fair_queue import DEFAULT_COSTS
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence
from gpu_consumers.step import Step
from tests.simulation.arrivals import Arrival, Trace
from tests.simulation.baselines import FirstComeQueue, RoundRobinQueue
from tests.simulation.machine import MEASURED, Memory


@dataclass(slots=True)
class Story:
    """What became of a request. times_us of its tokens."""

    arrival: Arrival
    tokens_at_us: list[int] = field(default_factory=list)
    ended_at_us: int | None = None
    timed_out: bool = False
    preempted: int = 0

    @property
    def ttft_us(self) -> int | None:
        return self.tokens_at_us[0] - self.arrival.at_us if self.tokens_at_us else None

    @property
    def in_time(self) -> bool:
        return self.ended_at_us is not None and not self.timed_out


@dataclass(slots=True)
class Run:
    """A trace's stories, and what was seen on the way.

    service_gap: the largest difference of weighted service that two tenants received while both waited all the time.
    missed_decodes: how often a sequence that decodes, and kept its slot, was left out of a step.
    cached_tokens: prompt tokens that were not run, as they were in memory.
    """

    stories: dict[str, Story]
    service_gap: float = 0.0
    longest_step_us: int = 0
    missed_decodes: int = 0
    cached_tokens: int = 0
    ended_at_us: int = 0


Cached = Callable[[str, tuple[int, ...], str | None], int]
Make = Callable[[EngineInfo, Cached], Scheduler]


def ours(info: EngineInfo, cached: Cached) -> Scheduler:
    """The scheduler as it is served."""
    return Scheduler(info, step_costs=MEASURED, cached_tokens=cached)


def first_come(info: EngineInfo, cached: Cached) -> Scheduler:
    return Scheduler(info, queue=FirstComeQueue(), shares_slots=False, cached_tokens=cached)


def round_robin(info: EngineInfo, cached: Cached) -> Scheduler:
    return Scheduler(info, queue=RoundRobinQueue(), shares_slots=False, cached_tokens=cached)


SCHEDULERS: Final[dict[str, Make]] = {
    "ours": ours, "FCFS": first_come, "round robin": round_robin,
}  # fmt: skip


def simulate(trace: Trace, make: Make = ours) -> Run:
    """Until the last request has ended."""
    return _Simulation(trace, make).run()


def _nothing_cached(tenant: str, token_ids: tuple[int, ...], adapter: str | None) -> int:
    return 0


class _Simulation:
    def __init__(self, trace: Trace, make: Make) -> None:
        self._trace = trace
        self._memory = Memory(trace.info) if trace.info.kv_blocks else None
        self._scheduler = make(trace.info, self._memory.cached_tokens if self._memory else _nothing_cached)
        self._scheduler.set_weights(trace.weights)
        self._stories = {f"r{n}": Story(arrival) for n, arrival in enumerate(trace.arrivals)}
        self._coming = list(reversed(self._stories.items()))
        self._result = Run(self._stories)
        self._gaps = ServiceGaps(trace.tenants)
        self._decoding: set[str] = set()
        self._now_us = 0

    def run(self) -> Run:
        while self._coming or self._scheduler.waiting_count or self._scheduler.running_count:
            self._arrive()
            step = self._scheduler.next_step(self._now_us)
            for request_id in step.expired:
                self._end(request_id, timed_out=True)
            if self._memory is not None:
                self._memory.run(step.plan)
            if step.plan.prefills or step.plan.decodes:
                self._execute(step)
            elif self._coming and not self._scheduler.running_count:
                self._now_us = max(self._now_us, self._coming[-1][1].arrival.at_us)
            waiting = self._scheduler.waiting_by_tenant.keys()
            self._result.service_gap = max(self._result.service_gap, self._gaps.look(waiting))
        self._result.ended_at_us = self._now_us
        self._scheduler.check_integrity()
        return self._result

    def _arrive(self) -> None:
        while self._coming and self._coming[-1][1].arrival.at_us <= self._now_us:
            request_id, story = self._coming.pop()
            arrival = story.arrival
            self._scheduler.add(
                Sequence(
                    request_id, arrival.tenant, arrival.prompt(int(request_id[1:])), arrival.max_tokens,
                    deadline_at_us=None if arrival.deadline_us is None else arrival.at_us + arrival.deadline_us,
                )
            )  # fmt: skip

    def _execute(self, step: Step) -> None:
        plan = step.plan
        for request_id in step.preempted:
            self._stories[request_id].preempted += 1
            self._decoding.discard(request_id)
        self._result.missed_decodes += len(self._decoding) - len(plan.decodes)
        took_us = int(MEASURED.duration_us(sum(len(chunk.token_ids) for chunk in plan.prefills), len(plan.decodes)))
        self._result.longest_step_us = max(self._result.longest_step_us, took_us)
        self._now_us += took_us
        for request_id, cached in step.admitted.items():
            self._result.cached_tokens += cached
            self._serve(request_id, (self._stories[request_id].arrival.prompt_tokens - cached) * DEFAULT_COSTS.input)
        for request_id in self._scheduler.take(_tokens(plan)).tokens:
            story = self._stories[request_id]
            story.tokens_at_us.append(self._now_us)
            self._decoding.add(request_id)
            self._serve(request_id, DEFAULT_COSTS.output)
            if len(story.tokens_at_us) == story.arrival.output_tokens:
                self._scheduler.remove(request_id)
                self._end(request_id)

    def _serve(self, request_id: str, cost: float) -> None:
        tenant = self._stories[request_id].arrival.tenant
        self._gaps.serve(tenant, cost / self._trace.weights.get(tenant, 1.0))

    def _end(self, request_id: str, *, timed_out: bool = False) -> None:
        story = self._stories[request_id]
        story.ended_at_us, story.timed_out = self._now_us, timed_out
        self._decoding.discard(request_id)


class ServiceGaps:
    """For each pair of tenants: how far the service that they received differs since both began to wait.

    Over every interval in which both wait, and not only from its start: the largest minus the smallest difference.
    """

    def __init__(self, tenants: list[str]) -> None:
        self._pairs = [(a, b) for a in tenants for b in tenants if a < b]
        self._served = dict.fromkeys(tenants, 0.0)
        self._ranges: dict[tuple[str, str], tuple[float, float]] = {}

    def serve(self, tenant: str, cost: float) -> None:
        self._served[tenant] += cost

    def look(self, waiting: Container[str]) -> float:
        """After a step. waiting: the tenants that wait now."""
        gap = 0.0
        for pair in self._pairs:
            if pair[0] not in waiting or pair[1] not in waiting:
                self._ranges.pop(pair, None)
                continue
            difference = self._served[pair[0]] - self._served[pair[1]]
            low, high = self._ranges.get(pair, (difference, difference))
            self._ranges[pair] = low, high = min(low, difference), max(high, difference)
            gap = max(gap, high - low)
        return gap


def _tokens(plan: StepPlan) -> StepResult:
    yielding = [chunk.slot for chunk in plan.prefills if chunk.last] + [decode.slot for decode in plan.decodes]
    return StepResult(dict.fromkeys(yielding, 1))
