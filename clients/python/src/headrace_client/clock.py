"""The clocks. Cores take `now` as an argument; only what waits or stamps events reads one."""

from __future__ import annotations

import time


def now_us() -> int:
    """Microseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1_000


def monotonic() -> float:
    """Seconds on a clock that never goes back."""
    return time.monotonic()
