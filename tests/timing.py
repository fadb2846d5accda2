"""How long tests wait: generous on purpose, and scaled by one factor for slow machines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_FACTOR = float(os.environ.get("HEADRACE_TEST_TIME_FACTOR", "1"))


def within(seconds: float) -> float:
    """`seconds`, times HEADRACE_TEST_TIME_FACTOR. Only ever an upper bound for giving up, never a promise."""
    return seconds * _FACTOR


def eventually(check: Callable[[], T | None], what: str, seconds: float = 10.0) -> T:
    """What `check` gives once it gives something true. Fails the test, saying `what`, when it never does."""
    tick = threading.Event()
    for _ in range(int(within(seconds) / 0.02)):
        if found := check():
            return found
        tick.wait(0.02)
    raise AssertionError(f"never came true within {within(seconds):.0f} s: {what}")
