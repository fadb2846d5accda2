"""How callers wait for what threads bring: by key, with one call-back for each waiter."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Wake = Callable[[], None]


def _for_ever() -> float:
    return math.inf


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """Something that may have to be waited for.

    ask: the answer, or None while there is none; raises when there never will be one. May be asked from any thread.
    key: what is woken when it is worth asking again. pause_s: ask again after so long at the latest.
    what: for the message of a time-out.
    """

    ask: Callable[[], T | None]
    key: Hashable
    what: str
    pause_s: Callable[[], float] = _for_ever


class Waiters:
    """Call-backs by key. Threads may share it."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, list[Wake]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def watching(self, key: Hashable, wake: Wake) -> Iterator[None]:
        """`wake` is called, on whichever thread it is, whenever the key is woken within the block."""
        with self._lock:
            self._by_key.setdefault(key, []).append(wake)
        try:
            yield
        finally:
            with self._lock:
                mine = self._by_key[key]
                mine.remove(wake)
                if not mine:
                    del self._by_key[key]

    def wake(self, *keys: Hashable) -> None:
        if not self._by_key:  # nearly always
            return
        with self._lock:
            wakes = [wake for key in keys for wake in self._by_key.get(key, ())]
        for wake in wakes:
            wake()

    def wake_all(self) -> None:
        with self._lock:
            keys = tuple(self._by_key)
        self.wake(*keys)
