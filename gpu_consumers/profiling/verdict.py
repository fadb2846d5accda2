"""What a worker is bound by, from measured numbers. Pure.

Time is split by what would shorten it. Waiting is input. What runs between forward passes (scheduler, tensors of the
plan, text and events) is the scheduler's. Of a forward pass, memory and compute explain as much as its floor: the
longer of the time to move its bytes and the time for its operations at what the bare machine reaches (the roofline
model). That much is shared between the two in proportion to their floors, so that a pass near the ridge counts for
both; what is beyond the floor is the engine's overhead: small operations, launches, threads that wait for each other.
Where nothing is known of what passes need, they are the engine's as a whole.
Every pass is split by itself, since prefill and decode steps are bound by different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpu_consumers.profiling.reference import Reference
from gpu_consumers.profiling.step import StepMeasured

NEAR: Final = 0.8
"""Two causes are near when the smaller has this share of the larger."""


class Bound(StrEnum):
    INPUT = "input"
    SCHEDULER = "scheduler"
    SAMPLING = "sampling"
    MEMORY = "memory"
    COMPUTE = "compute"
    OVERHEAD = "overhead"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Verdict:
    """bound: what takes most of the time. near: another that takes nearly as much.

    shares: of all time, by cause; they add up to 1. memory_seconds, compute_seconds: floors of all forward passes
    together. floor: share of the forward passes' time that the floors explain; None where what they need is not known.
    """

    bound: Bound
    near: Bound | None
    shares: dict[Bound, float]
    memory_seconds: float
    compute_seconds: float
    floor: float | None

    @property
    def title(self) -> str:
        """In words: "memory-bound", "between memory and compute"."""
        return f"{self.bound}-bound" if self.near is None else f"between {self.bound} and {self.near}"


def judge(steps: Sequence[StepMeasured], reference: Reference | None) -> Verdict:
    """reference: of this machine in this run; None where nothing is known of the model.

    Raises ValueError if nothing took any time."""
    seconds = dict.fromkeys(Bound, 0.0)
    memory_floor = compute_floor = explained = 0.0
    for step in steps:
        seconds[Bound.INPUT] += step.wait
        seconds[Bound.SCHEDULER] += step.schedule + step.build + step.write
        seconds[Bound.SAMPLING] += step.sample
        memory = step.needs.bytes / reference.bytes_per_second if reference else 0.0
        compute = step.needs.flops / reference.flops if reference else 0.0
        # No pass is faster than its floor: where it seems so, the floor was measured too high.
        floor = min(step.forward, max(memory, compute))
        if floor:
            seconds[Bound.MEMORY] += floor * memory / (memory + compute)
            seconds[Bound.COMPUTE] += floor * compute / (memory + compute)
        seconds[Bound.OVERHEAD if reference else Bound.ENGINE] += step.forward - floor
        memory_floor, compute_floor, explained = memory_floor + memory, compute_floor + compute, explained + floor
    whole = sum(seconds.values())
    if whole <= 0:
        raise ValueError("the steps took no time")
    first, second = sorted(Bound, key=lambda bound: -seconds[bound])[:2]
    forward = sum(step.forward for step in steps)
    return Verdict(
        bound=first,
        near=second if seconds[second] >= NEAR * seconds[first] else None,
        shares={bound: spent / whole for bound, spent in seconds.items()},
        memory_seconds=memory_floor,
        compute_seconds=compute_floor,
        floor=explained / forward if reference and forward else None,
    )
