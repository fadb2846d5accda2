"""A request in a worker's hands, with what the engine loop knows of it beside its events. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_consumers.drain import Unfinished
from gpu_consumers.generation import Generation
from gpu_consumers.work import Work


@dataclass(slots=True, eq=False)
class Active:
    """A request that is waiting or running here.

    has_slot: it is in the batch. has_prefix: its prefix is prefilled there, so that each step gives it a token.
    """

    work: Work
    generation: Generation
    newest_token_at_us: int | None = None
    has_slot: bool = False
    has_prefix: bool = False

    @property
    def unfinished(self) -> Unfinished:
        """What it needs at the most, if it is in the batch."""
        generation = self.generation
        return Unfinished(
            prefill_tokens=0 if self.has_prefix else len(generation.sequence.prefix_token_ids),
            output_tokens=generation.order.max_output_tokens - generation.output_tokens,
        )

    def got_slot(self) -> None:
        self.has_slot, self.has_prefix = True, False

    def lost_slot(self) -> None:
        self.has_slot = self.has_prefix = False
