"""Who loses its slot, if anybody, to the sequence whose turn it is while no slot is free. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_consumers.running import Running
from gpu_consumers.slot_shares import SlotShares
from gpu_consumers.waiting_queue import Turn


def choose_victim(
    turn: Turn, running: Iterable[Running], shares: SlotShares, served: Callable[[str], float], tolerance: float = 0.0
) -> Running | None:
    """For two reasons; among equals the one with the least work to do again goes.

    1. Class: somebody runs in a lower class. The lowest goes, of the tenant that was served most.
    2. Fairness: the tenant is far below its share of the slots, and another of its class, that was served no less but
       for the tolerance, is above its own. So a flood that came first does not make a newcomer wait until one of its
       answers is whole.

    Each preemption makes room for one admission, so that there are never more of them than admissions. A deadline
    preempts nobody: in `tests/simulation/` urgent requests that took slots from their tenant's patient ones met no
    more deadlines in all than without, as the work that was done again made others late.
    """
    running = list(running)
    lower = [one for one in running if one.rank > turn.rank]
    if lower:
        return max(lower, key=lambda one: (one.rank, served(one.tenant), -one.computed_tokens))
    tenant = turn.sequence.tenant
    if not shares.is_far_below(tenant):
        return None
    level = served(tenant) - tolerance
    rich = [one for one in running if one.rank == turn.rank and shares.is_above(one.tenant)]
    rich = [one for one in rich if served(one.tenant) >= level]
    return max(
        rich, key=lambda one: (shares.held(one.tenant) / shares.share(one.tenant), -one.computed_tokens), default=None
    )
