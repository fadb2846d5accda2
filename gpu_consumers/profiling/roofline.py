"""Steps as points under the roof of the machine (Williams, Waterman, Patterson, CACM 2009). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_consumers.profiling.reference import Reference
from gpu_consumers.profiling.step import StepMeasured


@dataclass(frozen=True, slots=True)
class Point:
    """Some steps together. intensity: operations for each byte that they move. flops: operations a second of their
    forward passes. seconds: of these passes."""

    label: str
    intensity: float
    flops: float
    seconds: float


def roof(reference: Reference, intensity: float) -> float:
    """Operations a second that the bare machine reaches at most, at so many for each byte."""
    return min(reference.flops, reference.bytes_per_second * intensity)


def points(steps: Sequence[StepMeasured]) -> list[Point]:
    """Of the steps that decode alone, and of those that prefill (too); without those that there are none of."""
    kinds = {
        "steps that decode": [step for step in steps if not step.prompt_tokens],
        "steps that prefill": [step for step in steps if step.prompt_tokens],
    }
    found = []
    for label, some in kinds.items():
        flops, size = sum(step.needs.flops for step in some), sum(step.needs.bytes for step in some)
        seconds = sum(step.forward for step in some)
        if flops and size and seconds:
            found.append(Point(label, flops / size, flops / seconds, seconds))
    return found
