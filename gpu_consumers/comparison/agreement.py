"""How much alike two models read one text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from gpu_consumers.comparison.continuations import OUTPUT_TOKENS, common_prefix
from gpu_consumers.comparison.reading import Reading


@dataclass(frozen=True, slots=True)
class Agreement:
    """same_greedy: share of the text's places at which both hold the same token for the likeliest.

    common_prefix: how many tokens of `continuation_tokens` greedy answers have in common from their beginning, in the
    mean of `continuations`. divergence: KL(A || B) in nats, in the mean of `places`; None where vocabularies differ in
    size.
    """

    same_greedy: float
    common_prefix: float
    continuation_tokens: int
    continuations: int
    divergence: float | None
    places: int


def agreement(a: Reading, b: Reading) -> Agreement:
    """Of readings of the same tokens in the same windows."""
    pairs = list(zip(a.continuations, b.continuations, strict=True))
    divergences = _divergences(a, b)
    return Agreement(
        same_greedy=fmean(x == y for x, y in zip(a.likeliest, b.likeliest, strict=True)),
        common_prefix=fmean(common_prefix(x, y) for x, y in pairs),
        continuation_tokens=OUTPUT_TOKENS,
        continuations=len(pairs),
        divergence=fmean(divergences) if divergences else None,
        places=len(divergences),
    )


def _divergences(a: Reading, b: Reading) -> list[float]:
    try:
        return [nats for x, y in zip(a.distributions, b.distributions, strict=True) for nats in x.divergences(y)]
    except ValueError:  # embeddings that were padded to another size: one tokenizer, two vocabularies
        return []
