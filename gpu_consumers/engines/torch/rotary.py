"""Rotary position embedding in the layout of Hugging Face's Llama: halves of a head rotate against each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
