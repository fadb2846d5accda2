"""Drawing the next token from logits: greedy, temperature, top-k, top-p, min-p, each sequence with its own.

A draw is a race of exponential clocks: each token that can be drawn waits for -log(1 - u) / probability, and the first
one is drawn (the argmin form of the Gumbel-max trick: Maddison, Tarlow and Minka, A* Sampling, NeurIPS 2014). The
uniform number u is a function of (seed, output index, token id): a counter, not a stream of random numbers. So a
sequence gets the same text whatever shares its batch, and whichever worker goes on with it; and where its logits
differ by a rounding error, only two tokens that arrive together to that precision can change places. (Inverting the
distribution function by one number is cheaper, but a rounding error there moves every boundary between tokens: four
hundred times as many draws of SmolLM2 in float32 would change.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.plan import SamplingParams

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_RARE: Final = 2.0**-14
"""Tokens less likely than this have one clock together; whose it was is asked when it comes first."""
_RARE_ROWS: Final = 8
"""Rows that ask so at once: each has a clock for every token of the vocabulary."""
_CROWD: Final = 1024
"""More candidates than this make a row of its own to be sorted."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Which token of a sequence is to be drawn, and how."""

    sampling: SamplingParams
    output_index: int


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """The token of each row of `logits` [rows, vocabulary]; None where no finite maximum exists (NaN or +inf).

    -inf is a token that can't be drawn. Temperature comes first, then top-k, then top-p of what top-k left, then min-p,
    as in transformers. Of equally likely tokens the lower id counts as the likelier; min-p keeps them all. Greedy rows
    cost one maximum, which all rows pay and which finds the broken ones too.
    """
    maxima, likeliest = logits.max(dim=-1)
    tokens: list[int | None] = [
        token if finite else None for token, finite in zip(likeliest.tolist(), maxima.isfinite().tolist(), strict=True)
    ]
    drawn = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0 and tokens[row] is not None]
    if not drawn:
        return tokens
    chosen = _draw(logits[drawn], [draws[row] for row in drawn])
    for row, token in zip(drawn, chosen, strict=True):
        tokens[row] = token
    return tokens


def uniforms(keys: Tensor, ids: Tensor) -> Tensor:
    """Numbers in (0, 1), float64, of 52 bits, that depend on key and token id alone; `ids` from -1 up.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): its output function over a counter, from a start that the key is.
    """
    mixed = keys + (ids + 1) * _signed(_GOLDEN)
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(_FIRST)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(_SECOND)
    mixed = mixed ^ _shifted(mixed, 31)
    return (_shifted(mixed, 12).double() + 0.5) * 2.0**-52


def key(seed: int, index: int) -> int:
    """What a draw is known by: the same function over (seed, output index), signed. Seeds count modulo 2**64."""
    return _signed(_mix(_mix(seed & _MASK) + (index + 1) * _GOLDEN))


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shifted(values: Tensor, bits: int) -> Tensor:
    """To the right, zeros from the left; torch's own shift copies the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _draw(logits: Tensor, draws: list[Draw]) -> list[int]:
    """Tokens of rows that are all finite and all at a temperature above 0."""
    size = logits.shape[-1]
    probabilities = _probabilities(logits, [draw.sampling for draw in draws])
    keys = torch.tensor([key(draw.sampling.seed, draw.output_index) for draw in draws], device=logits.device)
    keys = keys.unsqueeze(-1)
    filtered = [row for row, draw in enumerate(draws) if _filters(draw.sampling, size)]
    whole = sorted(set(range(len(draws))) - set(filtered))
    if not filtered:
        return _draw_whole(probabilities, keys).tolist()
    tokens = torch.zeros(len(draws), dtype=torch.long, device=logits.device)
    if whole:
        tokens[whole] = _draw_whole(probabilities[whole], keys[whole])
    sampling = [draws[row].sampling for row in filtered]
    tokens[filtered] = _draw_filtered(probabilities[filtered], keys[filtered], sampling)
    return tokens.tolist()


def _filters(sampling: SamplingParams, vocabulary_size: int) -> bool:
    return sampling.top_p < 1.0 or 0 < sampling.top_k < vocabulary_size or sampling.min_p > 0.0


def _probabilities(logits: Tensor, sampling: list[SamplingParams]) -> Tensor:
    """Softmax at each row's temperature. The maximum is taken off first: a tiny temperature must not overflow."""
    temperatures = torch.tensor([s.temperature for s in sampling], device=logits.device).clamp_min(1e-30)
    logits = logits.float()
    return (logits - logits.amax(-1, keepdim=True)).div_(temperatures.unsqueeze(-1)).softmax(-1)


def _race(weights: Tensor, ids: Tensor, keys: Tensor) -> Tensor:
    """The id that comes first in each row, [rows]: of `weights` and `ids` [rows, n], for `keys` [rows, 1].

    Weights are probabilities, not scaled to any sum, at least one of them above zero; one of zero never comes.
    """
    waits = -torch.log1p(-uniforms(keys, ids))
    return ids.gather(-1, (waits / weights).argmin(-1, keepdim=True)).squeeze(-1)


def _draw_whole(probabilities: Tensor, keys: Tensor) -> Tensor:
    """Over the whole vocabulary. Rare tokens take part as one, which comes as soon as the first of them would."""
    likely = F.threshold(probabilities, _RARE, 0.0)
    rare = probabilities - likely  # exact: each is one of them
    weights, ids = _packed(likely, likely)
    none = ids.new_full((len(ids), 1), -1)
    tokens = _race(torch.cat((weights, rare.sum(-1, keepdim=True)), -1), torch.cat((ids, none), -1), keys)
    everything = torch.arange(rare.shape[-1], device=rare.device)
    for rows in torch.split((tokens < 0).nonzero().squeeze(-1), _RARE_ROWS):
        tokens[rows] = _race(rare[rows], everything.expand(len(rows), -1), keys[rows])
    return tokens


def _draw_filtered(probabilities: Tensor, keys: Tensor, sampling: list[SamplingParams]) -> Tensor:
    """With a filter. Rows with many candidates are drawn one by one, so that others need not sort as many."""
    candidates = probabilities >= _floors(probabilities, sampling).unsqueeze(-1)
    counts = candidates.sum(-1)
    crowded = (counts > _CROWD).tolist()
    groups = [[row] for row, is_crowded in enumerate(crowded) if is_crowded]
    groups.append([row for row, is_crowded in enumerate(crowded) if not is_crowded])
    tokens = torch.empty(len(sampling), dtype=torch.long, device=keys.device)
    for rows in filter(None, groups):
        weights, ids = _packed(probabilities[rows], candidates[rows])
        tokens[rows] = _draw_nucleus(weights, ids, keys[rows], [sampling[row] for row in rows], probabilities.shape[-1])
    return tokens


def _floors(probabilities: Tensor, sampling: list[SamplingParams]) -> Tensor:
    """For each row a probability below which its filters keep nothing: sorting a vocabulary would cost a forward pass.

    With top-k that is the k-th largest. With top-p alone it is 1 / _CROWD if the tokens above that reach top_p by
    themselves; if not, (1 - top_p) / vocabulary: all tokens below it sum to less than 1 - top_p. Without top-k it is
    min-p's own bound, if that is higher. (With it, top-p has to see all of the k.)
    """
    size = probabilities.shape[-1]
    top_p = torch.tensor([s.top_p for s in sampling], dtype=torch.float64, device=probabilities.device)
    top_k = torch.tensor([s.top_k if s.top_k < size else 0 for s in sampling], device=probabilities.device)
    likely = torch.where(probabilities >= 1.0 / _CROWD, probabilities, 0.0).sum(-1, dtype=torch.float64)
    enough = (likely >= top_p) & (top_p < 1.0)  # a rounded sum may reach 1
    floors = torch.where(enough, 1.0 / _CROWD, (1.0 - top_p) / size).float()
    if any(s.min_p for s in sampling):
        floors = torch.maximum(floors, _min_p(sampling, probabilities.device) * probabilities.amax(-1))
    most = int(top_k.max())
    if most == 0:
        return floors
    kth = probabilities.topk(most).values.gather(-1, (top_k - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
    return torch.where(top_k > 0, kth, floors)


def _min_p(sampling: list[SamplingParams], device: torch.device) -> Tensor:
    """As floats, so that it is the same number wherever it is multiplied."""
    return torch.tensor([s.min_p for s in sampling], dtype=torch.float32, device=device)


def _packed(probabilities: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates of each row, which are not zero there, side by side, ids rising, zeros behind: probabilities and
    ids.
    """
    rows, ids = candidates.nonzero(as_tuple=True)
    starts = torch.searchsorted(rows, torch.arange(len(candidates) + 1, device=rows.device))
    places = torch.arange(len(rows), device=rows.device) - starts[rows]
    shape = (len(candidates), int(starts.diff().max()))
    packed_ids = ids.new_zeros(shape)
    packed_ids[rows, places] = ids
    weights = probabilities.new_zeros(shape)
    weights[rows, places] = probabilities[rows, ids]
    return weights, packed_ids


def _draw_nucleus(weights: Tensor, ids: Tensor, keys: Tensor, sampling: list[SamplingParams], size: int) -> Tensor:
    top_p = torch.tensor([s.top_p for s in sampling], dtype=torch.float64, device=weights.device).unsqueeze(-1)
    limited = torch.tensor([0 < s.top_k < size for s in sampling], device=weights.device).unsqueeze(-1)
    top_k = torch.tensor([s.top_k or weights.shape[-1] for s in sampling], device=weights.device).unsqueeze(-1)
    weights, order = weights.sort(dim=-1, descending=True, stable=True)
    weights = weights.where(torch.arange(weights.shape[-1], device=weights.device) < top_k, 0.0)
    rising = weights.cumsum(-1, dtype=torch.float64)
    # After top-k the distribution is made anew; without it the candidates are a part of one that sums to 1.
    reach = top_p * rising[:, -1:].where(limited, 1.0)
    weights = weights.where(rising - weights < reach, 0.0)
    if any(s.min_p for s in sampling):
        weights = weights.where(weights >= _min_p(sampling, weights.device).unsqueeze(-1) * weights[:, :1], 0.0)
    return _race(weights, ids.gather(-1, order), keys)
