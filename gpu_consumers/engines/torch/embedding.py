"""Token ids -> the rows that the first layer reads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Embedding:
    """tokens: [vocabulary, hidden]. positions: [most positions, hidden], learned; None: the model has none.

    scale: what a token's row is multiplied with, in the model's dtype already.
    """

    tokens: Tensor
    positions: Tensor | None = None
    scale: float = 1.0

    def __call__(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """[tokens] both -> [tokens, hidden]."""
        rows = self.tokens.index_select(0, token_ids)
        if self.scale != 1.0:
            rows.mul_(self.scale)
        if self.positions is not None:
            rows.add_(self.positions.index_select(0, positions))
        return rows
