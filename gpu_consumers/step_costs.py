"""What a step costs on this engine, as measured: what the scheduler needs to tell which deadlines can be met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_consumers.sequence import Sequence

_LEAST_BITE_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class StepCosts:
    """A step takes step_us, decode_us more for each decode in it, and prefill_token_us more for each prefilled token.

    mean_output_tokens: how long answers were so far. The default is what every answer has at least: with it, only what
        can't be whole in time on any account is held to be hopeless.
    """

    step_us: float
    decode_us: float
    prefill_token_us: float
    mean_output_tokens: float = 1.0

    def duration_us(self, prefill_tokens: int, decodes: int) -> float:
        """Of one step."""
        return self.step_us + decodes * self.decode_us + prefill_tokens * self.prefill_token_us

    def answer_us(self, sequence: Sequence, others: int) -> float:
        """From now to the end of its answer, if it gets a slot now and so many others decode beside it."""
        prefix = len(sequence.prefix_token_ids)
        allowed = max(1, sequence.max_tokens - prefix)
        left = min(allowed, max(1.0, self.mean_output_tokens - sequence.resumed_tokens))
        return prefix * self.prefill_token_us + left * self.duration_us(0, others + 1)

    def can_finish(self, sequence: Sequence, now_us: int, others: int) -> bool:
        """Whether it meets its deadline if it gets a slot now."""
        deadline = sequence.deadline_at_us
        return deadline is None or now_us + self.answer_us(sequence, others) <= deadline

    def is_urgent(self, sequence: Sequence, now_us: int, others: int) -> bool:
        """Whether it would miss its deadline if it waited for as long again as it will take."""
        deadline = sequence.deadline_at_us
        return deadline is not None and now_us + 2 * self.answer_us(sequence, others) > deadline

    def bite_tokens(self, decodes: int) -> int:
        """A prefill chunk that makes a step of so many decodes at most twice as long, and 16 tokens at the least."""
        if self.prefill_token_us <= 0:
            return 1 << 30
        return max(_LEAST_BITE_TOKENS, int(self.duration_us(0, max(1, decodes)) / self.prefill_token_us))
