"""Losses, greedy tokens and kept distributions from the logits of a sequence, chunk by chunk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.scoring import Scored
from gpu_consumers.errors import EngineFailedError

CHUNK_TOKENS: Final = 128
"""Logits of so many tokens are in memory at once, in fp32: 25 MB for a vocabulary of 50,000."""


@dataclass(frozen=True, slots=True)
class TorchDistributions:
    """log_probs: [places, vocabulary] natural logarithms, fp32 in the host's memory."""

    log_probs: Tensor

    def divergences(self, other: TorchDistributions) -> list[float]:
        if self.log_probs.shape != other.log_probs.shape:
            raise ValueError(f"distributions of {self.log_probs.shape} and of {other.log_probs.shape}")
        found: list[float] = []
        for begin in range(0, len(self.log_probs), CHUNK_TOKENS):
            ours, theirs = (kept.log_probs[begin : begin + CHUNK_TOKENS] for kept in (self, other))
            # Rounding takes a sum that is zero a little below it.
            found += F.kl_div(theirs, ours, reduction="none", log_target=True).sum(-1).clamp_(min=0.0).tolist()
        return found


def scored(
    logits: Iterable[Tensor], token_ids: Sequence[int], first: int, kept: Collection[int], *, vocabulary_size: int
) -> Scored:
    """logits: those behind token 0, 1, ... in chunks [tokens, vocabulary]; the ones behind the last are not needed.

    Raises EngineFailedError where they are no numbers.
    """
    losses: list[float] = []
    likeliest: list[int] = []
    distributions: list[Tensor] = []
    wanted, row = frozenset(kept), 0  # `row`: the number of the chunk's first one, which is about token `row` + 1
    for chunk in logits:
        begin, end = max(first, row + 1), min(row + 1 + len(chunk), len(token_ids))
        rows = chunk[max(0, begin - row - 1) : max(0, end - row - 1)].float()
        row += len(chunk)
        if begin >= end:
            continue
        log_probs = F.log_softmax(rows, dim=-1)
        targets = torch.tensor(token_ids[begin:end], device=rows.device)
        found = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        if not bool(torch.isfinite(found).all()):
            raise EngineFailedError(
                f"the logits of the text are no numbers, from its token {begin} on: a dtype with a larger range may "
                "help (bfloat16, float32)"
            )
        losses += found.tolist()
        likeliest += rows.argmax(-1).tolist()
        places = [place - begin for place in range(begin, end) if place in wanted]
        distributions.append(log_probs[places].cpu())
    empty = torch.empty(0, vocabulary_size)
    return Scored(tuple(losses), tuple(likeliest), TorchDistributions(torch.cat([empty, *distributions])))
