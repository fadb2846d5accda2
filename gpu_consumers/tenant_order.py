"""Which of many tenants comes first by a key that moves: a heap that is put right only where it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

Key = tuple[float, ...]

_SLACK: Final = 64


class TenantOrder:
    """A key that grows needs no word: its old entry comes up too early and is put right then. One that shrinks does.

    `put` and `first` cost the logarithm of the number of tenants, on average.
    """

    def __init__(self, key: Callable[[str], Key]) -> None:
        """key: of a tenant that is in here, now."""
        self._key = key
        self._newest: dict[str, Key] = {}  # the entry of each tenant that counts
        self._heap: list[tuple[Key, str]] = []

    def put(self, tenant: str) -> None:
        """It is in here from now on, or its key may have become smaller."""
        key = self._key(tenant)
        if self._newest.get(tenant) == key:
            return
        self._newest[tenant] = key
        heappush(self._heap, (key, tenant))
        if len(self._heap) > 2 * len(self._newest) + _SLACK:
            self._heap = [(key, tenant) for tenant, key in self._newest.items()]
            heapify(self._heap)

    def remove(self, tenant: str) -> None:
        self._newest.pop(tenant, None)

    def first(self) -> str | None:
        """The tenant of the least key, by name among equals; None if nobody is in here."""
        while self._heap:
            key, tenant = self._heap[0]
            if self._newest.get(tenant) != key:
                heappop(self._heap)
                continue
            current = self._key(tenant)
            if current == key:
                return tenant
            self._newest[tenant] = current
            heapreplace(self._heap, (current, tenant))
        return None

    def first_but(self, passed_over: Callable[[str], bool]) -> str | None:
        """The same among those that are not passed over; meant for few of them."""
        aside = []
        while (tenant := self.first()) is not None and passed_over(tenant):
            aside.append(heappop(self._heap))
        for entry in aside:
            heappush(self._heap, entry)
        return tenant
