"""Leaving in good order: what a worker that is to go still finishes, and when it goes. Pure.

From the moment that it is told, it takes nothing more and gives no more slots away. Its batch runs on, for the clients'
sake, but it waits for nobody who can't be ready in time: as soon as no request in the batch surely ends before the
drain does, it leaves. What is unfinished then stands in the log as far as it came, and another worker goes on with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gpu_consumers.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a request in the batch needs at the most: prefix tokens before its next token, and output tokens."""

    prefill_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Drain:
    """One that has begun. until_s: on the clock of `is_over`, when it ends at the latest. step_tokens: of one step."""

    until_s: float
    step_tokens: int

    def is_over(self, batch: Collection[Unfinished], costs: StepCosts, now_s: float) -> bool:
        """Nobody in the batch is worth waiting for any more."""
        return not any(self.is_short(request, batch, costs, now_s) for request in batch)

    def is_short(self, request: Unfinished, batch: Collection[Unfinished], costs: StepCosts, now_s: float) -> bool:
        """It ends before the drain does, if steps take what they cost: beside all others in the batch, behind their
        prefills, and with the longest answer that it may have."""
        prefill_tokens = sum(other.prefill_tokens for other in batch)
        steps = request.output_tokens
        if request.prefill_tokens:
            steps += -(-prefill_tokens // max(1, self.step_tokens - len(batch)))
        needed_us = steps * costs.duration_us(0, len(batch)) + prefill_tokens * costs.prefill_token_us
        return needed_us <= (self.until_s - now_s) * 1e6 and now_s < self.until_s
