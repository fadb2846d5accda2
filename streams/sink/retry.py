"""How long to wait before ClickHouse is asked again. Pure; `now` is in seconds on a clock that never goes back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first_seconds` to `max_seconds`, until something works again."""

    first_seconds: float
    max_seconds: float
    failures: int = 0
    not_before: float = 0.0

    def failed(self, now: float) -> float:
        """Notes a failure; the seconds until the next attempt is due."""
        delay = min(self.max_seconds, self.first_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        self.not_before = now + delay
        return delay

    def worked(self) -> bool:
        """Notes a success; whether it was the first after failures."""
        recovered = self.failures > 0
        self.failures, self.not_before = 0, 0.0
        return recovered

    def seconds_left(self, now: float) -> float:
        """Until the next attempt is due; 0 when it is."""
        return max(0.0, self.not_before - now)
