"""What a model makes of a text that is given: for those who compare models, never for a worker in service."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


class Distributions(Protocol):
    """Probabilities of all tokens at a few places. Kept without the engine that gave them."""

    def divergences(self, other: Any) -> list[float]:
        """KL(self || other) at each place, in nats: what it costs to take `other` for these (Kullback, Leibler 1951).

        other: those of the same places from an engine of the same kind. Raises ValueError if the two are not of the
        same shape: as many places, as large a vocabulary.
        """
        ...


@dataclass(frozen=True, slots=True)
class Scored:
    """Of one token after the other: losses, -ln of the probability that the model gave it; likeliest, the token that
    it gave the highest. distributions: of the places that were asked for, in order."""

    losses: tuple[float, ...]
    likeliest: tuple[int, ...]
    distributions: Distributions


@runtime_checkable
class ScoresTokens(Protocol):
    """An engine that tells probabilities of tokens that it is given, as the one that serves would see them: the same
    weights, KV memory and kernels."""

    @property
    def weight_bytes(self) -> int:
        """Memory that the weights take, as they lie on the device."""
        ...

    @property
    def kv_bytes_per_token(self) -> int:
        """Memory that the keys and values of one token take."""
        ...

    def score(self, token_ids: Sequence[int], first: int, kept: Collection[int] = ()) -> Scored:
        """Of the tokens from index `first` (1 or more) on, each with all that stand before it in sight.

        The engine must hold no sequences, and holds none afterwards. token_ids: as many as a slot holds, at most.
        kept: indexes of the tokens at whose places the distributions are kept.
        Raises EngineFailedError where the logits are no numbers.
        """
        ...
