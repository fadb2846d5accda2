"""Who is around, and what part of the machine each of them is entitled to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

AROUND_US: Final = 10_000_000
"""A tenant that waits or runs is around, and so it is for as long afterwards: its next request is expected."""


class Presence:
    """The tenants that are around, and their weights. Pure; owned by the scheduler."""

    def __init__(self, weight: Callable[[str], float]) -> None:
        self._weight = weight
        self._seen: OrderedDict[str, int] = OrderedDict()  # the longest ago first
        self._arrived: set[str] = set()
        self._total: float | None = None  # of the weights; None: has to be summed anew

    @property
    def is_alone(self) -> bool:
        """Whether there is at most one tenant around."""
        return len(self._seen) < 2

    def __len__(self) -> int:
        """Tenants that are around."""
        return len(self._seen)

    def arrived(self, tenant: str) -> None:
        self._arrived.add(tenant)

    def weights_changed(self) -> None:
        self._total = None

    def look(self, now_us: int, running: Iterable[str], is_waiting: Callable[[str], bool]) -> None:
        """Who is around now. running: the tenants that run."""
        self._see(self._arrived, now_us)
        self._see(running, now_us)
        self._arrived.clear()
        while self._seen:
            tenant, seen_us = next(iter(self._seen.items()))
            if now_us - seen_us < AROUND_US:
                break
            if is_waiting(tenant):
                self._see((tenant,), now_us)
            else:
                del self._seen[tenant]
                self._total = None

    def part(self, tenant: str) -> float:
        """In (0, 1]: what a tenant that is around is entitled to, while all others want theirs."""
        if self._total is None:
            self._total = sum(map(self._weight, self._seen))
        return self._weight(tenant) / self._total

    def _see(self, tenants: Iterable[str], now_us: int) -> None:
        for tenant in tenants:
            if tenant not in self._seen:
                self._total = None
            self._seen[tenant] = now_us
            self._seen.move_to_end(tenant)
