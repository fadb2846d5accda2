"""The one place where a clock is read. Shells call it and pass `now` on; cores never import it."""

from __future__ import annotations

import time


def now_us() -> int:
    """Wall clock, microseconds since the Unix epoch: event times."""
    return time.time_ns() // 1000


def now_ms() -> int:
    """Wall clock, milliseconds since the Unix epoch: request ids."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds on a clock that never goes back: time-outs and intervals."""
    return time.monotonic()
