"""Rotary position embedding in the layout of Hugging Face's Llama: halves of a head rotate against each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RotaryLayout:
    """Which dimensions of a head turn: the first `turning`; the rest stay as they are, at an angle of zero.

    The arithmetic turns the halves of a whole head against each other. Where only a part turns, the dimensions of
    queries and keys change places (in the weights that make them, once), so that each half begins with its half of
    what turns. Scores are sums over dimensions, so they stay the same.
    """

    head_dim: int
    turning: int

    @property
    def whole(self) -> bool:
        return self.turning == self.head_dim

    def order(self) -> list[int]:
        """Dimensions of a head in the order in which they are computed: [head_dim]."""
        turning, still = self.turning // 2, (self.head_dim - self.turning) // 2
        rest = range(self.turning, self.head_dim)
        return [*range(turning), *rest[:still], *range(turning, self.turning), *rest[still:]]

    def factors(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """[positions, turning] both, of the dimensions that turn -> [positions, head_dim], of all in their order."""
        if self.whole:
            return cos, sin
        half, still = self.turning // 2, (self.head_dim - self.turning) // 2
        ones, zeros = cos.new_ones(len(cos), still), cos.new_zeros(len(cos), still)
        return (
            torch.cat((cos[:, :half], ones, cos[:, half:], ones), dim=-1),
            torch.cat((sin[:, :half], zeros, sin[:, half:], zeros), dim=-1),
        )


@dataclass(frozen=True, slots=True)
class Rotation:
    """Factors of one step's tokens, [tokens, query heads + key heads, head_dim] each."""

    cos: Tensor
    sin: Tensor

    def apply(self, heads: Tensor) -> None:
        """Rotate `heads` [tokens, query heads + key heads, head_dim] in place."""
        swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
        heads.mul_(self.cos).addcmul_(swapped, self.sin)


class RotaryTable:
    """cos and sin of every position, in the model's dtype.

    The scale of attention scores is multiplied into the factors of the query heads, and the
    minus sign of the rotation into the first half of sin, so that neither costs anything at run time.
    """

    def __init__(
        self, cos: Tensor, sin: Tensor, *, query_heads: int, key_heads: int, query_scale: float | None = None
    ) -> None:
        """`cos`, `sin`: [positions, head_dim] in fp32, as transformers' rotary embedding computes them.

        query_scale: of attention scores (None: head_dim ** -0.5).
        """
        head_dim = cos.shape[-1]
        scale = torch.ones(query_heads + key_heads, 1, device=cos.device)
        scale[:query_heads] = head_dim**-0.5 if query_scale is None else query_scale
        self._scale = scale
        self._cos = cos
        self._sin = torch.cat((-sin[:, : head_dim // 2], sin[:, head_dim // 2 :]), dim=-1)

    def at(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        cos = self._cos.index_select(0, positions).unsqueeze(1) * self._scale
        sin = self._sin.index_select(0, positions).unsqueeze(1) * self._scale
        return Rotation(cos.to(dtype), sin.to(dtype))
