"""Who is served next: priority classes, then fairness across tenants, then deadlines within a tenant.

Fairness is the virtual token counter (VTC) of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024:
each tenant's counter holds the service that it has received, weighted by what tokens cost and divided by what the
tenant is entitled to, and the tenant with the lowest counter goes next. A tenant that comes back after idling is
lifted to the level of those who waited, so that it can't save up service and then shut the others out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from gpu_consumers.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """What a token costs: output is dearer, because a decode step reads all weights for one token."""

    input: float = 1.0
    output: float = 2.0


DEFAULT_COSTS = TokenCosts()


class _Place(NamedTuple):
    """Where a sequence stands in its tenant's queue; they sort in the order of service."""

    rank: int  # lower goes first: the negative priority
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
        self._arrivals = 0
        self._last_to_leave: str | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._places

    @property
    def waiting_by_tenant(self) -> dict[str, int]:
        return {tenant: len(queue) for tenant, queue in self._queues.items()}

    def served(self, tenant: str) -> float:
        """The tenant's virtual token counter."""
        return self._served.get(tenant, 0.0)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """A tenant of weight 2 is entitled to twice the service of one of weight 1, which is the default."""
        self._weights = {tenant: weight for tenant, weight in weights.items() if weight > 0}

    def push(self, sequence: Sequence) -> None:
        """Raises ValueError for a request that is waiting already."""
        if sequence.request_id in self._places:
            raise ValueError(f"{sequence.request_id} is waiting already")
        if sequence.tenant not in self._queues:
            self._lift(sequence.tenant)
        deadline = inf if sequence.deadline_at_us is None else sequence.deadline_at_us
        self._arrivals += 1
        place = _Place(-sequence.priority, deadline, self._arrivals, sequence)
        insort(self._queues.setdefault(sequence.tenant, []), place)
        self._places[sequence.request_id] = place

    def pop(self) -> Sequence | None:
        """Take out the sequence that is served next, and charge its prefix to its tenant. None if nobody waits."""
        if not self._queues:
            return None
        tenant = min(self._queues, key=lambda name: (self._queues[name][0].rank, self.served(name), name))
        sequence = self._queues[tenant][0].sequence
        self.remove(sequence.request_id)
        self._charge(tenant, self._costs.input * len(sequence.prefix_token_ids))
        return sequence

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
            self._last_to_leave = tenant
        return True

    def give_back_input(self, tenant: str, tokens: int) -> None:
        """So many of the prefix that `pop` charged need not be run: they are no service."""
        self._charge(tenant, -self._costs.input * tokens)

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

    def _charge(self, tenant: str, cost: float) -> None:
        self._served[tenant] = self.served(tenant) + cost / self._weights.get(tenant, 1.0)

    def _lift(self, tenant: str) -> None:
        """The tenant begins to wait: what it did not use while it was away is gone (algorithm 2 of the paper)."""
        if self._queues:
            level = min(self.served(name) for name in self._queues)
        else:
            level = self.served(self._last_to_leave) if self._last_to_leave is not None else 0.0
        self._served[tenant] = max(self.served(tenant), level)
