"""Many steps as a few numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_consumers.profiling.step import StepMeasured

PARTS: Final = ("wait", "schedule", "build", "forward", "sample", "write")
"""In the order in which a turn has them."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Of the steps of a window.

    parts: seconds by part, in the order of PARTS. bytes, kv_bytes, flops: what the steps needed, all together.
    mean_slots, mean_waiting: sequences in the batch, and behind it, in the mean of the steps.
    """

    steps: int
    seconds: float
    parts: dict[str, float]
    prompt_tokens: int
    output_tokens: int
    mean_slots: float
    mean_waiting: float
    bytes: float
    kv_bytes: float
    flops: float

    @property
    def output_tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds

    @property
    def prompt_tokens_per_second(self) -> float:
        return self.prompt_tokens / self.seconds


def summarize(steps: Sequence[StepMeasured]) -> Summary:
    """Raises ValueError for no steps."""
    if not steps:
        raise ValueError("no steps were measured")
    count = len(steps)
    parts = {part: float(sum(getattr(step, part) for step in steps)) for part in PARTS}
    return Summary(
        steps=count,
        seconds=sum(parts.values()),
        parts=parts,
        prompt_tokens=sum(step.prompt_tokens for step in steps),
        output_tokens=sum(step.output_tokens for step in steps),
        mean_slots=sum(step.slots for step in steps) / count,
        mean_waiting=sum(step.waiting for step in steps) / count,
        bytes=sum(step.needs.bytes for step in steps),
        kv_bytes=sum(step.needs.kv_bytes for step in steps),
        flops=sum(step.needs.flops for step in steps),
    )
