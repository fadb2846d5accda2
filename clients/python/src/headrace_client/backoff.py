"""When to try again: exponential backoff with full jitter (Brooker, "Exponential Backoff and Jitter", AWS 2015)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy; who waits keeps count.

    first_s, most_s: the longest wait before the first retry, and before any.
    attempts: how many retries there are; None: no end.
    """

    first_s: float = 0.1
    most_s: float = 5.0
    attempts: int | None = 8

    def delay_s(self, attempt: int, draw: float, *, at_least_s: float = 0.0) -> float | None:
        """How long to wait before retry number `attempt`, from 0; None when there are no more.

        draw: a random number in [0, 1). at_least_s: what the server asks for; the jitter comes on top of it, so that
        all whom it told the same do not come back at once.
        """
        if self.attempts is not None and attempt >= self.attempts:
            return None
        return at_least_s + draw * min(self.most_s, self.first_s * 2.0 ** min(attempt, 62))
