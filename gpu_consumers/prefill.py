"""How the prefill tokens of one step are shared out. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from gpu_consumers.running import Running


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
