"""How long tests wait: generous on purpose, and scaled by one factor for slow machines."""

from __future__ import annotations

import os

_FACTOR = float(os.environ.get("HEADRACE_TEST_TIME_FACTOR", "1"))


def within(seconds: float) -> float:
    """`seconds`, times HEADRACE_TEST_TIME_FACTOR. Only ever an upper bound for giving up, never a promise."""
    return seconds * _FACTOR
