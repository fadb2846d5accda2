"""Who is around, and how many slots each may call its own."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from math import ceil
from typing import Final

AROUND_US: Final = 10_000_000
"""A tenant that waits or runs is around, and so it is for as long afterwards: its next request is expected."""


class SlotShares:
    """The slots, shared by the weights of the tenants that are around. Pure; owned by the scheduler."""

    def __init__(self, slots: int, weight: Callable[[str], float]) -> None:
        self._slots = slots
        self._weight = weight
        self._seen: OrderedDict[str, int] = OrderedDict()  # the longest ago first
        self._arrived: set[str] = set()
        self._total: float | None = None  # of the weights; None: has to be summed anew
        self._held: Counter[str] = Counter()

    @property
    def is_alone(self) -> bool:
        """Whether there is at most one tenant around."""
        return len(self._seen) < 2

    def arrived(self, tenant: str) -> None:
        self._arrived.add(tenant)

    def weights_changed(self) -> None:
        self._total = None

    def held(self, tenant: str) -> int:
        """Slots that it has."""
        return self._held[tenant]

    def hold(self, tenant: str) -> None:
        self._held[tenant] += 1

    def let_go(self, tenant: str) -> None:
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]

    def look(self, now_us: int, is_waiting: Callable[[str], bool]) -> None:
        """Who is around now."""
        self._see(self._arrived, now_us)
        self._see(self._held, now_us)
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

    def share(self, tenant: str) -> float:
        """Slots that a tenant which is around is entitled to, while all others want theirs."""
        if self._total is None:
            self._total = sum(map(self._weight, self._seen))
        return self._slots * self._weight(tenant) / self._total

    def is_above(self, tenant: str) -> bool:
        """It holds more than its share, and others are around to whom that matters. The only slot is never too many."""
        held = self._held[tenant]
        return held > 1 and not self.is_alone and held > ceil(self.share(tenant))

    def is_far_below(self, tenant: str) -> bool:
        """It holds less than half of its share: half, so that two that are served in turns don't take and retake."""
        return not self.is_alone and 2 * self._held[tenant] < self.share(tenant)

    def _see(self, tenants: Iterable[str], now_us: int) -> None:
        for tenant in tenants:
            if tenant not in self._seen:
                self._total = None
            self._seen[tenant] = now_us
            self._seen.move_to_end(tenant)
