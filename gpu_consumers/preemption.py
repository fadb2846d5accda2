"""Who loses its slot, if anybody, to the sequence whose turn it is while no slot is free. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from gpu_consumers.running import Running
from gpu_consumers.slot_shares import SlotShares
from gpu_consumers.waiting_queue import Turn


def choose_victim(
    turn: Turn, running: Iterable[Running], shares: SlotShares, served: Callable[[str], float], *, is_urgent: bool
) -> Running | None:
    """For three reasons, in this order; among equals the one with the least work to do again goes.

    1. Class: somebody runs in a lower class. The lowest goes, of the tenant that was served most.
    2. Fairness: the tenant is far below its share of the slots, and another of its class, that was served no less, is
       above its own. So a flood that came first does not make a newcomer wait until one of its answers is whole.
    3. Deadline: the sequence is urgent, and one of its own tenant and class has more time. Nobody else's: a deadline
       is a tenant's word on its own requests.

    A victim is never of a higher class, and nobody is preempted by the same sequence twice for one admission, so that
    there are at most as many preemptions as admissions.
    """
    running = list(running)
    lower = [one for one in running if one.rank > turn.rank]
    if lower:
        return max(lower, key=lambda one: (one.rank, served(one.tenant), -one.computed_tokens))
    tenant = turn.sequence.tenant
    equals = [one for one in running if one.rank == turn.rank]
    if shares.is_far_below(tenant):
        level = served(tenant)
        rich = [one for one in equals if shares.is_above(one.tenant) and served(one.tenant) >= level]
        if rich:
            return max(rich, key=lambda one: (shares.held(one.tenant) / shares.share(one.tenant), -one.computed_tokens))
    if is_urgent:
        own_deadline = _deadline(turn.sequence.deadline_at_us)
        own = [one for one in equals if one.tenant == tenant and _deadline(one.sequence.deadline_at_us) > own_deadline]
        if own:
            return max(own, key=lambda one: (_deadline(one.sequence.deadline_at_us), -one.computed_tokens))
    return None


def _deadline(at_us: int | None) -> float:
    return inf if at_us is None else at_us
