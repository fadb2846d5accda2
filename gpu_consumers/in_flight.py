"""The step that is out: which sequences have tokens in it, and which of them are due one."""

from __future__ import annotations

from gpu_consumers.plan import Decode, PrefillChunk
from gpu_consumers.running import Running


class InFlight:
    """Pure; owned by the scheduler. `due`: sequences that owe a token, in the order of the plan."""

    def __init__(self) -> None:
        self.due: list[Running] = []
        self.tokens = 0  # of the whole step

    def clear(self) -> None:
        """Another step begins."""
        self.due.clear()
        self.tokens = 0

    def decode(self, running: Running) -> Decode:
        """Its newest token runs, and the one after it is due."""
        decode = Decode(running.slot, running.output_token_ids[-1], running.computed_tokens)
        self._add(running, 1)
        self.due.append(running)
        return decode

    def prefill(self, running: Running, tokens: int) -> PrefillChunk:
        """So many tokens of its prefix run; the last of them makes one due."""
        start = running.computed_tokens
        self._add(running, tokens)
        last = not running.remaining_tokens
        if last:
            self.due.append(running)
        return PrefillChunk(running.slot, running.sequence.prefix_token_ids[start : start + tokens], start, last)

    def _add(self, running: Running, tokens: int) -> None:
        running.computed_tokens += tokens
        self.tokens += tokens
