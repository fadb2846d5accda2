"""How long answers are, tenant by tenant, as learnt from those that ended here."""

from __future__ import annotations

from typing import Final

_NEWEST_WEIGHT: Final = 0.05
"""Of the newest answer in a tenant's mean, once there are enough: what a tenant asks for changes with the hour."""


class OutputLengths:
    """Pure; owned by the scheduler. What a request asks for at most says little: few answers come to that."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._answers: dict[str, int] = {}

    def ended(self, tenant: str, output_tokens: int) -> None:
        """An answer of so many tokens left, whole or not."""
        answers = self._answers[tenant] = self._answers.get(tenant, 0) + 1
        mean = self._means.get(tenant, 0.0)
        self._means[tenant] = mean + max(_NEWEST_WEIGHT, 1 / answers) * (output_tokens - mean)

    def mean(self, tenant: str) -> float | None:
        """None while nothing of the tenant's has ended."""
        return self._means.get(tenant)
