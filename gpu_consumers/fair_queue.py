"""Who is served next: priority classes, then fairness across tenants, then deadlines within a tenant.

Fairness is the virtual token counter (VTC) of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024:
each tenant's counter holds the service that it has received, weighted by what tokens cost and divided by what the
tenant is entitled to, and the tenant with the lowest counter goes next. A tenant that comes back after idling is
lifted to the level of those who waited, so that it can't save up service and then shut the others out.

Classes are strict, with one way out: a tenant that waited PATIENCE_US without getting a slot, because others fill
them from a higher class, gets its next one in the highest class that waits. Patience is the tenant's and not the
request's, or a flood would grow old and go before everybody's new requests.

Within a tenant the earliest feasible deadline goes first (Abbott and Garcia-Molina, "Scheduling Real-Time
Transactions", 1988). Plain earliest-deadline-first collapses under overload: it works on what will be late anyway.
Here that waits below all classes, of whatever tenant, as the estimate may be wrong, until its deadline ends it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from gpu_consumers.sequence import Sequence
from gpu_consumers.tenant_order import Key, TenantOrder
from gpu_consumers.waiting_queue import NO_PRECEDENCE, CanFinish, Precedence, Turn

PATIENCE_US: Final = 10_000_000
_HOPELESS: Final = 1 << 40  # the rank below all classes


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """What a token costs: output is dearer, because a decode step reads all weights for one token."""

    input: float = 1.0
    output: float = 2.0


DEFAULT_COSTS = TokenCosts()


class _Place(NamedTuple):
    """Where a sequence stands in its tenant's queue; they sort in the order of service."""

    rank: int  # lower goes first: the negative priority
    fresh: bool  # has not run yet: what lost its slot goes first
    deadline_at_us: float
    arrival: int  # unique, so that the comparison ends here
    sequence: Sequence


class FairQueue:
    """The waiting sequences and every tenant's counter. Pure; owned by the scheduler."""

    def __init__(self, costs: TokenCosts = DEFAULT_COSTS) -> None:
        self._costs = costs
        self._weights: Mapping[str, float] = {}
        self._served: dict[str, float] = {}  # the virtual token counters
        self._queues: dict[str, list[_Place]] = {}  # of tenants that wait; never an empty one
        self._places: dict[str, _Place] = {}  # by request id
        self._turns = TenantOrder(self._turn_key)
        self._levels = TenantOrder(self._level_key)
        self._since: OrderedDict[str, int] = OrderedDict()  # when each waiting tenant's wait began, the longest first
        self._anew: list[str] = []  # tenants whose wait begins at the next look at a clock
        self._arrivals = 0
        self._last_to_leave: str | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._places

    @property
    def waiting_by_tenant(self) -> dict[str, int]:
        return {tenant: len(queue) for tenant, queue in self._queues.items()}

    def waiting_of(self, tenant: str) -> int:
        return len(self._queues.get(tenant, ()))

    def is_waiting(self, tenant: str) -> bool:
        return tenant in self._queues

    def served(self, tenant: str) -> float:
        """The tenant's virtual token counter."""
        return self._served.get(tenant, 0.0)

    def weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """A tenant of weight 2 is entitled to twice the service of one of weight 1, which is the default."""
        self._weights = {tenant: weight for tenant, weight in weights.items() if weight > 0}

    def push(self, sequence: Sequence) -> None:
        """Raises ValueError for a request that is waiting already."""
        self._arrivals += 1
        self._put(sequence, self._arrivals, fresh=True)

    def put_back(self, turn: Turn, sequence: Sequence) -> None:
        """What was taken has lost its slot: it goes before all others of its tenant and class, in order of arrival."""
        self._put(sequence, turn.arrival, fresh=False)

    def next(self, now_us: int, can_finish: CanFinish, precedence: Precedence = NO_PRECEDENCE) -> Turn | None:
        """Whose turn it is; None if nobody waits."""
        self._since.update((tenant, now_us) for tenant in self._anew if tenant in self._since)
        self._anew.clear()
        while (tenant := self._turns.first()) is not None:
            place = self._queues[tenant][0]
            if not self._became_hopeless(place, can_finish):
                starving = self._starving(now_us, place.rank, can_finish)
                chosen = starving or self._in_favour(place, can_finish, precedence)
                return Turn(chosen.sequence, place.rank, chosen.arrival, resumed=not chosen.fresh)
        return None

    def take(self, turn: Turn) -> None:
        """It gets a slot, and its prefix is charged to its tenant unless that was done before."""
        sequence = turn.sequence
        self.remove(sequence.request_id)
        if sequence.tenant in self._since:
            self._since.move_to_end(sequence.tenant)
            self._anew.append(sequence.tenant)
        if not turn.resumed:
            self._charge(sequence.tenant, self._costs.input * len(sequence.prefix_token_ids))

    def remove(self, request_id: str) -> bool:
        """Take a sequence out unserved. False if it doesn't wait."""
        place = self._places.pop(request_id, None)
        if place is None:
            return False
        tenant = place.sequence.tenant
        queue = self._queues[tenant]
        del queue[bisect_left(queue, place)]
        if not queue:
            del self._queues[tenant]
            del self._since[tenant]
            self._turns.remove(tenant)
            self._levels.remove(tenant)
            self._last_to_leave = tenant
        return True

    def give_back_input(self, tenant: str, tokens: int) -> None:
        """So many of the prefix that `take` charged need not be run: they are no service."""
        self._charge(tenant, -self._costs.input * tokens)
        if tenant in self._queues:
            self._turns.put(tenant)
            self._levels.put(tenant)

    def charge_output(self, tenant: str) -> None:
        """One output token was made for this tenant."""
        self._charge(tenant, self._costs.output)

    def check_integrity(self) -> None:
        """Raises AssertionError when the two views of who waits differ."""
        queued = [place for queue in self._queues.values() for place in queue]
        assert all(self._queues.values()), "an empty queue was kept"
        assert all(queue == sorted(queue) for queue in self._queues.values()), "a queue is out of order"
        assert {place.sequence.request_id: place for place in queued} == self._places, "queues and places differ"
        assert len(queued) == len(self._places), "a request waits twice"
        assert self._since.keys() == self._queues.keys(), "patience of a tenant that doesn't wait"
        assert self._turns.first() == min(self._queues, key=lambda name: (self._turn_key(name), name), default=None)

    def _put(self, sequence: Sequence, arrival: int, *, fresh: bool) -> None:
        if sequence.request_id in self._places:
            raise ValueError(f"{sequence.request_id} is waiting already")
        tenant = sequence.tenant
        if tenant not in self._queues:
            self._lift(tenant)
            self._since[tenant] = 0
            self._anew.append(tenant)
        deadline = inf if sequence.deadline_at_us is None else sequence.deadline_at_us
        self._place(_Place(-sequence.priority, fresh, deadline, arrival, sequence))
        self._levels.put(tenant)

    def _place(self, place: _Place) -> None:
        tenant = place.sequence.tenant
        insort(self._queues.setdefault(tenant, []), place)
        self._places[place.sequence.request_id] = place
        self._turns.put(tenant)

    def _became_hopeless(self, place: _Place, can_finish: CanFinish) -> bool:
        """Put it behind all others, once, if its deadline can't be met any more."""
        if place.rank == _HOPELESS or place.deadline_at_us == inf or can_finish(place.sequence):
            return False
        queue = self._queues[place.sequence.tenant]
        del queue[bisect_left(queue, place)]
        self._place(place._replace(rank=_HOPELESS))
        return True

    def _starving(self, now_us: int, rank: int, can_finish: CanFinish) -> _Place | None:
        """The first of the tenant whose patience is at an end and that would not be served in this class."""
        while self._since:
            tenant, since = next(iter(self._since.items()))
            if now_us - since < PATIENCE_US:
                return None
            place = self._queues[tenant][0]
            while self._became_hopeless(place, can_finish):
                place = self._queues[tenant][0]
            if rank < place.rank < _HOPELESS:
                return place
            # Others of its own class are in its way, which is fair: it is looked at again after as long a wait.
            self._since[tenant] = now_us
            self._since.move_to_end(tenant)
        return None

    def _in_favour(self, place: _Place, can_finish: CanFinish, precedence: Precedence) -> _Place:
        """Who goes instead of the tenant that was served least."""
        if not precedence.passed_over(place.sequence.tenant):
            return place
        while (tenant := self._turns.first_but(precedence.passed_over)) is not None:
            other = self._queues[tenant][0]
            if self._became_hopeless(other, can_finish):
                continue
            ahead = self.served(tenant) - self.served(place.sequence.tenant)
            if other.rank == place.rank and ahead * self.weight(tenant) <= precedence.tolerance:
                return other
            break
        return place

    def _turn_key(self, tenant: str) -> Key:
        return self._queues[tenant][0].rank, self.served(tenant)

    def _level_key(self, tenant: str) -> Key:
        return (self.served(tenant),)

    def _charge(self, tenant: str, cost: float) -> None:
        self._served[tenant] = self.served(tenant) + cost / self.weight(tenant)

    def _lift(self, tenant: str) -> None:
        """The tenant begins to wait: what it did not use while it was away is gone (algorithm 2 of the paper)."""
        lowest = self._levels.first() or self._last_to_leave
        self._served[tenant] = max(self.served(tenant), 0.0 if lowest is None else self.served(lowest))
