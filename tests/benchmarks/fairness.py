"""What a flood costs others, on the torch engine with SmolLM2-135M in bf16, under the scheduler of a worker.

`fairness_ttft_p95`: the time to the first token of a tenant that sends a request now and then, beside one that has
more waiting than the engine can ever serve, against the same requests alone. Rounds of both by turns; percentiles over
all of them. A request's time begins when it arrives, also in the middle of a step. They come so far apart that the
light tenant keeps a third of the machine busy, by what steps were measured to take just before. The clock is the CPU
time of this process, with torch on one thread, and it leaps where nothing is to be done: whatever else the machine
does between two rounds falls on neither.

`fairness_service_gap`: two tenants that always wait, one with short prompts and long answers, one the other way round:
the largest difference of the service that they received over any interval, against the bound of Sheng et al.,
2 max(w_in L_input, w_out M).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import torch

from gpu_consumers.engines.torch import TorchEngine
from gpu_consumers.fair_queue import DEFAULT_COSTS
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.throughput import measure_throughput
from tests.benchmarks.row import BenchRow
from tests.benchmarks.smollm2 import smollm2_engine
from tests.simulation.simulator import ServiceGaps

ROUNDS: Final = 2
SLOTS: Final = 16
LIGHT_REQUESTS: Final = 40  # of a round
LIGHT_LOAD: Final = 1 / 3
LIGHT_OUTPUT_TOKENS: Final = 16
MEAN_PROMPT_TOKENS: Final = 136
FLOOD_WAITING: Final = 64
FLOOD_OUTPUT_TOKENS: Final = 64
FLOOD_HEAD_START_SECONDS: Final = 2.0
BACKLOG_STEPS: Final = 400

Prompts = Iterator[tuple[int, ...]]


def run() -> list[BenchRow]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        engine = smollm2_engine(slots=SLOTS)
        costs = measure_throughput(engine, budget_seconds=4.0, clock=time.process_time).costs
        if costs is None:
            raise RuntimeError("four seconds did not suffice to measure what a step takes")
        return [_first_tokens(engine, costs), _service(engine, costs)]
    finally:
        torch.set_num_threads(threads)


def _first_tokens(engine: TorchEngine, costs: StepCosts) -> BenchRow:
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(ROUNDS):
        for floods in (False, True):
            times[floods] += _Service(engine, costs).light_first_tokens(seed=number, floods=floods)
    alone, beside = (1e3 * statistics.quantiles(times[floods], n=20, method="inclusive")[-1] for floods in times)
    return BenchRow("fairness_ttft_p95", beside, alone, "ms to the first token", 1.25, higher_is_better=False)


def _service(engine: TorchEngine, costs: StepCosts) -> BenchRow:
    short, long = (16, 96), (240, 8)  # prompt and output tokens
    gap = _Service(engine, costs).service_gap({"a": short, "b": long})
    in_batch = SLOTS * max(sum(short), sum(long))
    bound = 2 * max(DEFAULT_COSTS.input * max(short[0], long[0]), DEFAULT_COSTS.output * in_batch)
    return BenchRow("fairness_service_gap", gap, bound, "token costs", 1.0, higher_is_better=False)


@dataclass
class _Request:
    tenant: str
    arrived_at: float
    prompt_tokens: int
    left: int
    first_token_at: float | None = None


@dataclass
class _Service:
    """One scheduler over the engine, whose slots are free before and afterwards. Times in CPU seconds since then."""

    engine: TorchEngine
    costs: StepCosts
    requests: dict[str, _Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scheduler = Scheduler(self.engine.info, cached_tokens=self.engine.cached_tokens, step_costs=self.costs)
        self._numbers = count()
        self._began = time.process_time()

    @property
    def now(self) -> float:
        return time.process_time() - self._began

    def light_first_tokens(self, *, seed: int, floods: bool) -> list[float]:
        """Seconds from arrival to first token of each request of the light tenant.

        The first of a flooded round is expected by nobody: the flood is alone until then, and has whole steps. It
        counts like the others.
        """
        arrivals = self._arrivals(seed, FLOOD_HEAD_START_SECONDS if floods else 0.0)
        light_prompts, flood_prompts = _prompts(seed), _prompts(1000 + seed)
        light: list[_Request] = []
        while arrivals or any(request.left for request in light):
            while arrivals and arrivals[0] <= self.now:
                light.append(self._send("light", next(light_prompts), LIGHT_OUTPUT_TOKENS, arrivals.pop(0)))
            while floods and self._scheduler.waiting_by_tenant.get("flood", 0) < FLOOD_WAITING:
                self._send("flood", next(flood_prompts), FLOOD_OUTPUT_TOKENS, self.now)
            if not self._scheduler.running_count and not self._scheduler.waiting_count:
                self._began -= max(0.0, arrivals[0] - self.now)
                continue
            self._step()
        self._leave()
        return [one.first_token_at - one.arrived_at for one in light if one.first_token_at is not None]

    def service_gap(self, loads: dict[str, tuple[int, int]]) -> float:
        """loads: (prompt, output) tokens of the requests of each tenant, all of which always wait."""
        gaps, prompts = ServiceGaps(list(loads)), _prompts(7)
        largest = 0.0

        def serve(request: _Request, cost: float) -> None:
            gaps.serve(request.tenant, cost)

        for _ in range(BACKLOG_STEPS):
            for tenant, (prompt_tokens, output_tokens) in loads.items():
                while self._scheduler.waiting_by_tenant.get(tenant, 0) <= SLOTS:
                    prompt = (next(prompts) * 16)[:prompt_tokens]
                    self._send(tenant, prompt, output_tokens, self.now)
            self._step(serve)
            largest = max(largest, gaps.look(self._scheduler.waiting_by_tenant))
        self._leave()
        return largest

    def _arrivals(self, seed: int, at: float) -> list[float]:
        answer_us = self.costs.duration_us(MEAN_PROMPT_TOKENS, 0) + LIGHT_OUTPUT_TOKENS * self.costs.duration_us(0, 1)
        random_, arrivals = random.Random(seed), list[float]()
        for _ in range(LIGHT_REQUESTS):
            at += random_.expovariate(LIGHT_LOAD / (answer_us / 1e6))
            arrivals.append(at)
        return arrivals

    def _send(self, tenant: str, prompt: tuple[int, ...], output_tokens: int, at: float) -> _Request:
        name = f"r{next(self._numbers)}"
        request = self.requests[name] = _Request(tenant, at, len(prompt), output_tokens)
        self._scheduler.add(Sequence(name, tenant, prompt, len(prompt) + output_tokens))
        return request

    def _step(self, serve: Callable[[_Request, float], None] = lambda request, cost: None) -> None:
        step = self._scheduler.next_step(int(self.now * 1e6))
        for name, cached_tokens in step.admitted.items():
            request = self.requests[name]
            serve(request, DEFAULT_COSTS.input * (request.prompt_tokens - cached_tokens))
        outcome = self._scheduler.take(self.engine.execute(step.plan))
        now = self.now
        for name in outcome.tokens:
            request = self.requests[name]
            serve(request, DEFAULT_COSTS.output)
            request.left -= 1
            if request.first_token_at is None:
                request.first_token_at = now
            if not request.left:
                self._scheduler.remove(name)

    def _leave(self) -> None:
        for name in self.requests:
            self._scheduler.remove(name)
        self.engine.execute(self._scheduler.next_step(int(self.now * 1e6)).plan)


def _prompts(seed: int) -> Prompts:
    """Of 16 to 256 tokens; no two begin alike."""
    random_ = random.Random(seed)
    while True:
        yield tuple(random_.randrange(10, 49_000) for _ in range(random_.randrange(16, 257)))
