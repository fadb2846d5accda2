"""How many tokens a step may have, after what an engine that ran out of memory has taught."""

from __future__ import annotations

from typing import Final

_GOOD_STEPS: Final = 64


class StepLimit:
    """Halved when memory runs out, and doubled after so many steps that went well: what took the memory may be gone.
    Each time it runs out twice as many are asked for, so that what does not fit is tried ever more rarely. Pure; owned
    by the scheduler.

    A step has a token of every sequence that decodes, so this limits those that run, too.
    """

    def __init__(self, most_tokens: int) -> None:
        self.tokens = self._most_tokens = most_tokens
        self._patience_steps = _GOOD_STEPS
        self._good_steps = 0

    def ran_out(self, tokens: int) -> None:
        """A step of so many tokens, more than one, did not fit into memory."""
        self.tokens = min(self.tokens, tokens) // 2
        self._patience_steps *= 2
        self._good_steps = 0

    def went_well(self) -> None:
        self._good_steps += 1
        if self.tokens < self._most_tokens and self._good_steps >= self._patience_steps:
            self.tokens = min(self._most_tokens, 2 * self.tokens)
            self._good_steps = 0
