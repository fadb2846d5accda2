"""Drawing the next token from logits: greedy, temperature, top-k, top-p, each sequence with its own.

The draw for the token at output index i is a function of the logits and of (seed, i): a counter, not a stream of
random numbers. So a sequence gets the same text whatever shares its batch, and whichever worker goes on with it.
(With equal logits, that is: see the engine for how far those are equal.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.plan import SamplingParams

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Draw:
    """Which token of a sequence is to be drawn, and how."""

    sampling: SamplingParams
    output_index: int


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """The token of each row of `logits` [rows, vocabulary]; None where no finite maximum exists (NaN or +inf).

    -inf is a token that can't be drawn. Temperature comes first, then top-k, then top-p of what top-k left, as in
    transformers. Of equally likely tokens the lower id counts as the likelier. Greedy rows cost one maximum,
    which all rows pay and which finds the broken ones too.
    """
    maxima, likeliest = logits.max(dim=-1)
    tokens: list[int | None] = [
        token if finite else None for token, finite in zip(likeliest.tolist(), maxima.isfinite().tolist(), strict=True)
    ]
    drawn = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0 and tokens[row] is not None]
    if not drawn:
        return tokens
    probabilities = _probabilities(logits[drawn], [draws[row].sampling for row in drawn])
    filtered = [i for i, row in enumerate(drawn) if _filters(draws[row].sampling, logits.shape[-1])]
    whole = [i for i in range(len(drawn)) if i not in set(filtered)]
    for i, token in zip(whole, _draw_whole(probabilities, whole, draws, drawn), strict=True):
        tokens[drawn[i]] = token
    for i, (kept, ids) in zip(filtered, _candidates(probabilities, filtered, draws, drawn), strict=True):
        tokens[drawn[i]] = _draw_nucleus(kept, ids, draws[drawn[i]])
    return tokens


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that depends on (seed, index) alone; 53 random bits.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): its output function over a counter, from a start that the
    seed, hashed by the same function, gives. Seeds count modulo 2**64.
    """
    return (_mix(_mix(seed & _MASK) + (index + 1) * _GOLDEN) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _filters(sampling: SamplingParams, vocabulary_size: int) -> bool:
    return sampling.top_p < 1.0 or 0 < sampling.top_k < vocabulary_size


def _probabilities(logits: Tensor, sampling: list[SamplingParams]) -> Tensor:
    """Softmax at each row's temperature. The maximum is taken off first: a tiny temperature must not overflow."""
    temperatures = torch.tensor([s.temperature for s in sampling], device=logits.device).clamp_min(1e-30)
    logits = logits.float()
    return (logits - logits.amax(-1, keepdim=True)).div_(temperatures.unsqueeze(-1)).softmax(-1)


def _draw_whole(probabilities: Tensor, whole: list[int], draws: Sequence[Draw], drawn: list[int]) -> list[int]:
    """Invert the distribution function over the whole vocabulary in order of token id: no sort."""
    if not whole:
        return []
    rising = probabilities[whole].double().cumsum(-1)
    at = [uniform(draws[drawn[i]].sampling.seed, draws[drawn[i]].output_index) for i in whole]
    points = torch.tensor(at, dtype=torch.float64, device=rising.device).unsqueeze(-1) * rising[:, -1:]
    return _inverse(rising, points).squeeze(-1).tolist()


def _inverse(rising: Tensor, points: Tensor) -> Tensor:
    """Index of the first value of `rising` above the point; never one past the last that rises."""
    last = torch.searchsorted(rising, rising[..., -1:].contiguous())
    return torch.minimum(torch.searchsorted(rising, points, right=True), last)


def _candidates(
    probabilities: Tensor, filtered: list[int], draws: Sequence[Draw], drawn: list[int]
) -> list[tuple[Tensor, Tensor]]:
    """For each filtered row a superset of the tokens that its filters keep: (probabilities, ids), ids rising.

    Sorting a whole vocabulary would cost more than the model's forward pass. With top-k nothing below the k-th
    largest is kept. With top-p alone, tokens below (1 - top_p) / vocabulary sum to less than 1 - top_p, so that
    all others together reach top_p without them.
    """
    if not filtered:
        return []
    rows = probabilities[filtered]
    size = rows.shape[-1]
    floors = []
    for row, i in zip(rows, filtered, strict=True):
        sampling = draws[drawn[i]].sampling
        if 0 < sampling.top_k < size:
            floors.append(row.topk(sampling.top_k, sorted=False).values.min())
        else:
            floors.append(torch.tensor((1.0 - sampling.top_p) / size, device=rows.device))
    chosen = rows >= torch.stack(floors).unsqueeze(-1)
    counts = chosen.sum(-1).tolist()
    ids = chosen.nonzero()[:, 1]
    return list(zip(torch.split(rows[chosen], counts), torch.split(ids, counts), strict=True))


def _draw_nucleus(probabilities: Tensor, ids: Tensor, draw: Draw) -> int:
    order = probabilities.argsort(descending=True, stable=True)
    if draw.sampling.top_k > 0:
        order = order[: draw.sampling.top_k]
    likely = probabilities[order].double()
    rising = likely.cumsum(-1)
    # Without top-k the candidates are a part of a distribution that sums to 1; after it, a distribution anew.
    total = rising[-1] if draw.sampling.top_k > 0 else rising.new_ones(())
    kept = int((rising - likely < draw.sampling.top_p * total).sum())
    rising = rising[:kept]
    point = uniform(draw.sampling.seed, draw.output_index) * rising[-1:]
    return int(ids[order[_inverse(rising, point)]])
