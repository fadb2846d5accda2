"""Who loses its slot to another. Pure.

Because somebody's turn has come and there is no slot, or too little memory: `choose_victims`.
Because a sequence that runs needs a block of memory, and none is free: `who_gives_way`.

A sequence that could not go on in another slot (`Running.may_lose_slot`) is no victim. Where only such ones run, who
has come waits until one of them ends; they never lack memory (`gpu_consumers/running_batch.py`), so they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_consumers.running import Running
from gpu_consumers.running_batch import RunningBatch
from gpu_consumers.shares import Shares
from gpu_consumers.waiting_queue import Turn


def choose_victim(
    turn: Turn, running: Iterable[Running], shares: Shares, served: Callable[[str], float], tolerance: float = 0.0
) -> Running | None:
    """For two reasons; among equals the one with the least work to do again goes.

    1. Class: somebody runs in a lower class. The lowest goes, of the tenant that was served most.
    2. Fairness: the tenant is far below its share of what it lacks, and another of its class, that was served no less
       but for the tolerance, is above its own. So a flood that came first does not make a newcomer wait until one of
       its answers is whole. What has lost its slot before keeps its new one until it has made a token there: so every
       two losses of a sequence have a token between them, and the batch never turns in circles.

    A deadline preempts nobody: in `tests/simulation/` urgent requests that took slots from their tenant's patient ones
    met no more deadlines in all than without, as the work that was done again made others late.
    """
    running = [one for one in running if one.may_lose_slot]
    lower = [one for one in running if one.rank > turn.rank]
    if lower:
        return max(lower, key=lambda one: (one.rank, served(one.tenant), -one.computed_tokens))
    tenant = turn.sequence.tenant
    if not shares.is_far_below(tenant):
        return None
    level = served(tenant) - tolerance
    rich = [one for one in running if one.rank == turn.rank and (one.decodes or not one.turn.resumed)]
    rich = [one for one in rich if shares.is_above(one.tenant) and served(one.tenant) >= level]
    return max(
        rich, key=lambda one: (shares.held(one.tenant) / shares.share(one.tenant), -one.computed_tokens), default=None
    )


def choose_victims(
    turn: Turn,
    running: Iterable[Running],
    blocks: Shares,
    missing_blocks: int,
    served: Callable[[str], float],
    tolerance: float = 0.0,
) -> list[Running]:
    """As many as together make room for what lacks so many blocks; none, if that can't be."""
    left, after, victims = list(running), blocks.copy(), list[Running]()
    while missing_blocks > 0:
        victim = choose_victim(turn, left, after, served, tolerance)
        if victim is None:
            return []
        victims.append(victim)
        left.remove(victim)
        after.let_go(victim.tenant, victim.blocks)
        missing_blocks -= victim.blocks + victim.room_blocks
    return victims


def who_gives_way(batch: RunningBatch, most_running: int, is_above: Callable[[str], bool]) -> list[Running]:
    """Who must lose its slot so that no more than `most_running` run, at least 1, and every block that is lacked is
    there. Never all of them: what runs alone fits.

    Lower classes first, then tenants above their share, then who came last. So who came first keeps its place whatever
    others do, and is done in the end. Those that could not go on in another slot come after all these: they lack no
    blocks, so it is only where more of them run than may that one of them goes, and the engine ends it with its reason
    when it is admitted again.
    """
    lacking = {running for running in batch if batch.lacks_blocks(running)}
    free = batch.blocks.free
    if len(batch) <= most_running and len(lacking) <= free:
        return []
    above = {tenant for tenant in batch.slots.tenants if is_above(tenant)}
    left = sorted(
        batch,
        key=lambda running: (running.may_lose_slot, running.rank, running.tenant in above, running.turn.arrival),
    )
    victims = []
    while len(left) > most_running or len(lacking) > free:
        victim = left.pop()
        victims.append(victim)
        lacking.discard(victim)
        free += victim.blocks
    return victims
