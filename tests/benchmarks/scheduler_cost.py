"""What the scheduler costs: its time for a step while 1,000 requests wait, against 2 % of a decode step.

The baseline is 2 % of the 14 ms that one decode step of SmolLM2-135M takes on two CPU cores, the shortest step there
is: with 64 slots in use a real one is longer. Requests wait in the queues of one tenant, and of 1,000 tenants, which
is what the choice of the next tenant costs most for.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from gpu_consumers.engine import EngineInfo
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence
from gpu_consumers.step_costs import StepCosts
from tests.benchmarks.row import BenchRow

WAITING: Final = 1_000
SLOTS: Final = 16
STEPS: Final = 2_000
OUTPUT_TOKENS: Final = 64
BUDGET_US: Final = 0.02 * 14_000
INFO: Final = EngineInfo("none", SLOTS, 2048, 256 + SLOTS, 1_000, frozenset())
COSTS: Final = StepCosts(step_us=13_467, decode_us=533, prefill_token_us=570, mean_output_tokens=OUTPUT_TOKENS)


def run() -> list[BenchRow]:
    """Means over steps with admissions, decodes and answers that end; what leaves is replaced."""
    return [
        BenchRow(f"scheduler_cost of a step, 1000 wait, {tenants} tenants", microseconds_a_step(tenants), BUDGET_US,
                 "us a step", bar=1.0, higher_is_better=False)
        for tenants in (1, 20, 1_000)
    ]  # fmt: skip


def microseconds_a_step(tenants: int, steps: int = STEPS) -> float:
    """`next_step`, `take`, and what leaves and arrives with them: the best of three means."""
    return min(statistics.fmean(_times(tenants, steps)) for _ in range(3)) * 1e6


def _times(tenants: int, steps: int) -> list[float]:
    scheduler = Scheduler(INFO, step_costs=COSTS)
    left: dict[str, int] = {}
    now_us, sent = 0, 0

    def arrive() -> None:
        nonlocal sent
        while scheduler.waiting_count < WAITING:
            deadline_at_us = now_us + 60_000_000 if sent % 2 else None
            prompt = tuple(range(16 + sent % 240))
            scheduler.add(
                Sequence(f"r{sent}", f"t{sent % tenants}", prompt, len(prompt) + 64, deadline_at_us=deadline_at_us)
            )
            left[f"r{sent}"] = OUTPUT_TOKENS
            sent += 1

    arrive()
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        step = scheduler.next_step(now_us)
        between = time.perf_counter()
        result = _result(step.plan)
        resumed = time.perf_counter()
        for request_id in scheduler.take(result).tokens:
            left[request_id] -= 1
            if not left[request_id]:
                scheduler.remove(request_id)
        arrive()
        times.append(between - began + time.perf_counter() - resumed)
        now_us += 20_000
    return times


def _result(plan: StepPlan) -> StepResult:
    yielding = [chunk.slot for chunk in plan.prefills if chunk.last] + [decode.slot for decode in plan.decodes]
    return StepResult(dict.fromkeys(yielding, 1))
