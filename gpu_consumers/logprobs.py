"""Log probabilities of the drawn token and of the likeliest ones, as the model gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.plan import Logprobs

LEAST: Final = -9999.0
"""What is told of a token that the model holds for impossible: JSON has no infinity."""


def logprobs_of(logits: Tensor, chosen: Sequence[int], top: Sequence[int]) -> list[Logprobs]:
    """For each row of `logits` [rows, vocabulary], raw and finite at their maximum.

    chosen: the token that was drawn. top: how many of the likeliest are told, the likeliest first, of equal ones the
    lower id.
    """
    logits = logits.float()
    most = min(max(top), logits.shape[-1])
    values, ids = logits.topk(most) if most else (logits[:, :0], logits[:, :0].long())
    drawn = torch.tensor(chosen, device=logits.device).unsqueeze(-1)
    told = torch.cat((logits.gather(-1, drawn), values), dim=-1) - logits.logsumexp(-1, keepdim=True)
    rows = zip(told.clamp_min_(LEAST).tolist(), ids.tolist(), top, strict=True)
    return [Logprobs(row[0], _likeliest(row[1:], row_ids, count)) for row, row_ids, count in rows]


def _likeliest(values: list[float], ids: list[int], count: int) -> tuple[tuple[int, float], ...]:
    ordered = sorted(zip(ids, values, strict=True), key=lambda entry: (-entry[1], entry[0]))
    return tuple(ordered[:count])
