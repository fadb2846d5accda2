"""Which deadlines can still be met."""

from __future__ import annotations

from typing import Final

from gpu_consumers.output_lengths import OutputLengths
from gpu_consumers.sequence import Sequence
from gpu_consumers.step_costs import StepCosts

_NEWEST_WEIGHT: Final = 0.05
"""Of the newest step in the mean of recent ones."""


class Forecast:
    """When an answer will be whole, by what steps cost and by how long they took lately. Pure; owned by the scheduler.

    What a decode waits for in a busy batch is above all the prefill of others, which no cost of its own tells: so the
    recent mean of a step counts where it is longer than the batch alone explains.

    An answer is taken to be as long as those of its tenant were so far, and before any of them has ended as long as
    the costs say.
    """

    def __init__(self, costs: StepCosts | None) -> None:
        self.costs = costs
        self.lengths = OutputLengths()
        self._now_us = 0
        self._others = 0
        self._began_us: int | None = None
        self._recent_us = 0.0

    def look(self, now_us: int, running: int) -> None:
        """A step is about to be planned, with so many sequences that run."""
        if self._began_us is not None:
            self._recent_us += _NEWEST_WEIGHT * (now_us - self._began_us - self._recent_us)
        self._began_us = None
        self._now_us, self._others = now_us, running

    def begins(self, now_us: int) -> None:
        """The step that was planned is not empty."""
        self._began_us = now_us

    def can_finish(self, sequence: Sequence) -> bool:
        """Whether it meets its deadline if it gets a slot now. Without costs everything can."""
        if self.costs is None or sequence.deadline_at_us is None:
            return True
        return self._now_us + self._answer_us(sequence, self.costs) <= sequence.deadline_at_us

    def _answer_us(self, sequence: Sequence, costs: StepCosts) -> float:
        prefix = len(sequence.prefix_token_ids)
        allowed = max(1, sequence.max_tokens - prefix)
        mean = self.lengths.mean(sequence.tenant)
        expected = costs.mean_output_tokens if mean is None else mean
        left = min(allowed, max(1.0, expected - sequence.resumed_tokens))
        step_us = max(self._recent_us, costs.duration_us(0, self._others + 1))
        return prefix * costs.prefill_token_us + left * step_us
