"""Which LoRA adapter lies in which place of an engine's memory, and who holds it there. Pure.

An adapter that running requests use is pinned, once for each of them. When a place is wanted, one that holds nothing
goes first, then that of an unpinned adapter: one that is out of date before all others, among equals the one that was
used least recently. With all of them pinned there is none.

Until its place is wanted an adapter keeps it, so that no engine has to hear of what it holds for nobody, and what is
asked for again never lies in two places.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice


@dataclass(slots=True)
class _Placed:
    """used: when it was last taken or let go of, as a count."""

    place: int
    used: int
    pins: int = 0


class AdapterPlaces:
    """Places 0 to `count` - 1. Adapters go by their keys, which are others for other weights."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._placed: dict[str, _Placed] = {}  # in the order in which they got their places
        self._free = list(range(count - 1, -1, -1))
        self._uses = 0
        self._current: frozenset[str] | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._placed

    def __len__(self) -> int:
        return len(self._placed)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._placed)

    @property
    def available(self) -> int:
        """Places that `put` may give away: those that hold nothing, or what nobody pins."""
        return len(self._free) + sum(1 for placed in self._placed.values() if not placed.pins)

    def place_of(self, key: str) -> int:
        """Raises KeyError for an adapter that has no place."""
        return self._placed[key].place

    def pins_of(self, key: str) -> int:
        """How many hold it; 0 too for one that has no place."""
        placed = self._placed.get(key)
        return 0 if placed is None else placed.pins

    def longest(self, count: int) -> frozenset[str]:
        """The `count` adapters that have had their places for longest."""
        return frozenset(islice(self._placed, count))

    def put(self, key: str) -> tuple[int, str | None]:
        """Give it a place, unpinned as yet: the place, and whose it was until now.

        Raises ValueError if it has a place, or if there is none (`available`).
        """
        if key in self._placed:
            raise ValueError(f"{key} has a place already")
        evicted = None
        if not self._free:
            unpinned = [known for known, placed in self._placed.items() if not placed.pins]
            if not unpinned:
                raise ValueError(f"all {self._count} places are pinned")
            evicted = min(unpinned, key=lambda known: (self._is_current(known), self._placed[known].used))
            self.remove(evicted)
        place = self._free.pop()
        self._placed[key] = _Placed(place, self._next_use())
        return place, evicted

    def pin(self, key: str) -> None:
        """It stays until `unpin` was called as often. Raises KeyError for one that has no place."""
        placed = self._placed[key]
        placed.pins += 1
        placed.used = self._next_use()

    def unpin(self, key: str) -> None:
        """Raises ValueError for one that nobody holds."""
        placed = self._placed.get(key)
        if placed is None or not placed.pins:
            raise ValueError(f"nobody holds {key}")
        placed.pins -= 1
        placed.used = self._next_use()

    def remove(self, key: str) -> None:
        """Its place is free. Raises ValueError for one that somebody holds."""
        if self._placed[key].pins:
            raise ValueError(f"{key} is pinned")
        self._free.append(self._placed.pop(key).place)

    def set_current(self, keys: Iterable[str]) -> None:
        """All others are out of date: only who began with them asks for them."""
        self._current = frozenset(keys)

    def check_integrity(self) -> None:
        """Raises AssertionError when a place leaked or is shared."""
        taken = [placed.place for placed in self._placed.values()]
        assert sorted(taken + self._free) == list(range(self._count)), "a place leaked or is shared"

    def _is_current(self, key: str) -> bool:
        return self._current is None or key in self._current

    def _next_use(self) -> int:
        self._uses += 1
        return self._uses
