"""What others do, behind the port of the fair queue: first come first served, and round robin over tenants."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from gpu_consumers.fair_queue import DEFAULT_COSTS, TokenCosts
from gpu_consumers.sequence import Sequence
from gpu_consumers.waiting_queue import NO_PRECEDENCE, CanFinish, Precedence, Turn


class RoundRobinQueue:
    """One request of each tenant in turn, in order of arrival within a tenant."""

    def __init__(self, costs: TokenCosts = DEFAULT_COSTS) -> None:
        self._costs = costs
        self._queues: OrderedDict[str, OrderedDict[str, Turn]] = OrderedDict()
        self._tenant_of: dict[str, str] = {}
        self._served: dict[str, float] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._tenant_of)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._tenant_of

    @property
    def waiting_by_tenant(self) -> dict[str, int]:
        return dict(Counter(self._tenant_of.values()))

    def waiting_of(self, tenant: str) -> int:
        return self.waiting_by_tenant.get(tenant, 0)

    def is_waiting(self, tenant: str) -> bool:
        return tenant in self._tenant_of.values()

    def served(self, tenant: str) -> float:
        return self._served.get(tenant, 0.0)

    def weight(self, tenant: str) -> float:
        return 1.0

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """It knows none."""

    def push(self, sequence: Sequence) -> None:
        self._arrivals += 1
        self._put(Turn(sequence, 0, self._arrivals))

    def put_back(self, turn: Turn, sequence: Sequence) -> None:
        """Memory ran short: it goes before all others of its queue."""
        self._put(replace(turn, sequence=sequence, resumed=True))
        self._queues[self._queue_name(sequence.tenant)].move_to_end(sequence.request_id, last=False)

    def next(self, now_us: int, can_finish: CanFinish, precedence: Precedence = NO_PRECEDENCE) -> Turn | None:
        for queue in self._queues.values():
            return next(iter(queue.values()))
        return None

    def take(self, turn: Turn) -> None:
        tenant = turn.sequence.tenant
        self.remove(turn.sequence.request_id)
        if tenant in self._queues:
            self._queues.move_to_end(tenant)
        if not turn.resumed:
            self._charge(tenant, self._costs.input * len(turn.sequence.prefix_token_ids))

    def remove(self, request_id: str) -> bool:
        tenant = self._tenant_of.pop(request_id, None)
        if tenant is None:
            return False
        queue_name = self._queue_name(tenant)
        del self._queues[queue_name][request_id]
        if not self._queues[queue_name]:
            del self._queues[queue_name]
        return True

    def give_back_input(self, tenant: str, tokens: int) -> None:
        self._charge(tenant, -self._costs.input * tokens)

    def charge_output(self, tenant: str) -> None:
        self._charge(tenant, self._costs.output)

    def check_integrity(self) -> None:
        assert sum(map(len, self._queues.values())) == len(self._tenant_of)

    def _queue_name(self, tenant: str) -> str:
        return tenant

    def _put(self, turn: Turn) -> None:
        sequence = turn.sequence
        self._queues.setdefault(self._queue_name(sequence.tenant), OrderedDict())[sequence.request_id] = turn
        self._tenant_of[sequence.request_id] = sequence.tenant

    def _charge(self, tenant: str, cost: float) -> None:
        self._served[tenant] = self.served(tenant) + cost


class FirstComeQueue(RoundRobinQueue):
    """One queue for everybody."""

    def _queue_name(self, tenant: str) -> str:
        return ""
