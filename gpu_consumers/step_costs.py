"""What a step costs on this engine, as measured: what the scheduler needs to tell which deadlines can be met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LEAST_BITE_TOKENS: Final = 16
_BITE: Final = 0.75  # of the time of a step without prefill


@dataclass(frozen=True, slots=True)
class StepCosts:
    """A step takes step_us, decode_us more for each decode in it, and prefill_token_us more for each prefilled token.

    mean_output_tokens: how long answers of a tenant are taken to be before one of them has ended. The default is what
        every answer has at least: only what can't be whole in time on any account is held to be hopeless then.
    """

    step_us: float
    decode_us: float
    prefill_token_us: float
    mean_output_tokens: float = 1.0

    def duration_us(self, prefill_tokens: int, decodes: int) -> float:
        """Of one step."""
        return self.step_us + decodes * self.decode_us + prefill_tokens * self.prefill_token_us

    def bite_tokens(self, decodes: int) -> int:
        """A prefill chunk that takes three quarters of the time of a step with so many decodes; 16 tokens at the least.

        Smaller bites let a newcomer wait for less, and leave more of the machine to the cost of a step as such: at
        this size a flood gives up a tenth of its throughput while others are around (`tests/simulation/`).
        """
        if self.prefill_token_us <= 0:
            return 1 << 30
        return max(_LEAST_BITE_TOKENS, int(_BITE * self.duration_us(0, max(1, decodes)) / self.prefill_token_us))
