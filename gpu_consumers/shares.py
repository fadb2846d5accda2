"""Something that there is a fixed number of, slots or blocks of KV memory, and which tenant has how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import KeysView
from math import ceil

from gpu_consumers.presence import Presence


class Shares:
    """Units that sequences hold, and what each tenant may call its own. Pure; owned by the running batch.

    A total of 0 is for what is not counted: nobody holds any of it, is above a share of it, or below.
    """

    def __init__(self, total: int, presence: Presence) -> None:
        self.free = self.total = total
        self._presence = presence
        self._held: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()

    @property
    def tenants(self) -> KeysView[str]:
        """Those that have sequences which hold some."""
        return self._sequences.keys()

    def held(self, tenant: str) -> int:
        """Units that it has."""
        return self._held[tenant]

    def hold(self, tenant: str, units: int = 1) -> None:
        """One more of its sequences holds so many."""
        self._sequences[tenant] += 1
        self.grow(tenant, units)

    def grow(self, tenant: str, units: int) -> None:
        """A sequence that holds some takes so many more. Raises ValueError if there are not so many."""
        if units > self.free:
            raise ValueError(f"{units} units wanted and {self.free} free")
        self._held[tenant] += units
        self.free -= units

    def let_go(self, tenant: str, units: int = 1) -> None:
        """A sequence that held so many in all leaves."""
        self._held[tenant] -= units
        self._sequences[tenant] -= 1
        self.free += units
        if not self._sequences[tenant]:
            del self._held[tenant], self._sequences[tenant]

    def share(self, tenant: str) -> float:
        """Units that a tenant which is around is entitled to, while all others want theirs."""
        return self.total * self._presence.part(tenant)

    def is_above(self, tenant: str) -> bool:
        """It holds more than its share, and others are around to whom that matters. What its only sequence holds is
        never too much: it could do with no less."""
        if self._sequences[tenant] < 2 or self._presence.is_alone:
            return False
        return self._held[tenant] > ceil(self.share(tenant))

    def is_far_below(self, tenant: str) -> bool:
        """It holds less than half of its share: half, so that two that are served in turns don't take and retake."""
        return not self._presence.is_alone and 2 * self._held[tenant] < self.share(tenant)

    def copy(self) -> Shares:
        """To try out what would be if somebody let go of something."""
        other = Shares(self.total, self._presence)
        other.free, other._held, other._sequences = self.free, self._held.copy(), self._sequences.copy()
        return other
