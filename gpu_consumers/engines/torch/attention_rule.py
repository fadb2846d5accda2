"""What a layer's tokens attend to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Window = int | None
"""How many of the newest tokens a token attends to, itself included; None: all there are."""


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """Causal attention within a window.

    softcap: scores become cap * tanh(score / cap) before they are masked; None: they stay as they are.
    """

    window: Window = None
    softcap: float | None = None


FULL_ATTENTION: Final = AttentionRule()
