"""What rank 0 tells the others: everything that its own engine does to a model or to KV memory, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_consumers.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Order:
    """One step.

    spoiled: slots that went wrong behind the forward pass of the step before: only who samples can know.
    plan: of this step.
    failed: its slots that could not be run. Who samples knows reasons of its own, and all must run the same rows.
    """

    spoiled: tuple[int, ...]
    plan: StepPlan
    failed: tuple[int, ...]


class Peers(Protocol):
    """The other ranks, as the engine of rank 0 sees them."""

    def step(self, order: Order) -> None:
        """They run this, too. Raises EngineFailedError when one of them is gone."""
        ...

    def close(self) -> None: ...
