"""How the prefill tokens of one step are shared out. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from gpu_consumers.running import Running
from gpu_consumers.step_costs import StepCosts

_BITES_OF_A_STEP: Final = 8
_MOST_SKIPPED: Final = 3


def share_out(
    prefilling: Iterable[Running], budget_tokens: int, above: Container[str], bite_tokens: int
) -> list[tuple[Running, int]]:
    """(sequence, tokens of its prefix) by class, then by admission, as far as the budget goes.

    above: tenants that hold more than their share of the slots. They get a bite of the step, all of them together,
    but that one in every step, so that they are slowed and never stopped.
    """
    ordered = sorted(prefilling, key=lambda running: running.rank)
    wanted = sum(running.remaining_tokens for running in ordered if running.tenant in above)
    bite_tokens = min(budget_tokens, bite_tokens, wanted)
    rest_tokens = budget_tokens - bite_tokens
    parts = []
    for running in ordered:
        if running.tenant in above:
            tokens = min(bite_tokens, running.remaining_tokens)
            bite_tokens -= tokens
        else:
            tokens = min(rest_tokens, running.remaining_tokens)
            rest_tokens -= tokens
        if tokens:
            parts.append((running, tokens))
    return parts


class Bites:
    """How much those above their share may prefill in a step. Pure; owned by the scheduler."""

    def __init__(self, max_step_tokens: int) -> None:
        self._max_step_tokens = max_step_tokens
        self._skipped = 0  # newest steps without one

    def tokens(self, costs: StepCosts | None, decodes: int) -> int:
        """Of a bite beside so many decodes; an eighth of the largest step while nothing is known of costs."""
        if costs is None:
            return max(1, self._max_step_tokens // _BITES_OF_A_STEP)
        return costs.bite_tokens(decodes)

    def next(self, costs: StepCosts | None, decodes: int, *, gives_way: bool) -> int:
        """Of this step's bite. gives_way: others, within their share, prefill too; three steps are theirs alone."""
        if gives_way and self._skipped < _MOST_SKIPPED:
            self._skipped += 1
            return 0
        self._skipped = 0
        return self.tokens(costs, decodes)
