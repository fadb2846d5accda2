from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from gpu_consumers.plan import SamplingParams
from gpu_consumers.sampling import Draw, key, sample, uniforms

VOCABULARY = 40


def logits(seed: int, rows: int = 1, spread: float = 2.0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread


def filtered_softmax(row: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """The distribution that the parameters mean, written as directly as can be."""
    probabilities = (row.double() / sampling.temperature).softmax(-1)
    order = probabilities.argsort(descending=True, stable=True).tolist()
    kept = order[: sampling.top_k] if sampling.top_k else order
    mass, nucleus = sum(probabilities[i].item() for i in kept), []
    reached = 0.0
    for i in kept:
        if reached >= sampling.top_p * mass:
            break
        nucleus.append(i)
        reached += probabilities[i].item()
    nucleus = [i for i in nucleus if probabilities[i] >= sampling.min_p * probabilities.max()]
    expected = torch.zeros_like(probabilities)
    expected[nucleus] = probabilities[nucleus]
    return expected / expected.sum()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(1.0),
        SamplingParams(0.5),
        SamplingParams(2.0, top_k=7),
        SamplingParams(1.5, top_p=0.8),
        SamplingParams(1.0, top_p=0.7, top_k=12),
        SamplingParams(1.0, top_p=0.05),
        SamplingParams(3.0, top_k=1),
        SamplingParams(1.0, top_k=VOCABULARY + 5),
        SamplingParams(1.0, min_p=0.02),
        SamplingParams(2.0, min_p=0.3),
        SamplingParams(1.0, min_p=1.0),
        SamplingParams(2.0, top_k=9, min_p=0.1),
        SamplingParams(1.5, top_p=0.9, min_p=0.05),
        SamplingParams(2.0, top_p=0.6, top_k=20, min_p=0.2),
        SamplingParams(2.0, top_p=0.6, top_k=VOCABULARY, min_p=0.02),
    ],
)
def test_draws_follow_the_filtered_softmax(sampling: SamplingParams) -> None:
    row, draws = logits(1), 4000
    expected = filtered_softmax(row[0], sampling)
    drawn = sample(
        row.expand(draws, -1),
        [Draw(replace(sampling, seed=seed), 0) for seed in range(draws)],
    )
    counts = torch.bincount(torch.tensor([t for t in drawn if t is not None]), minlength=VOCABULARY).double()
    assert counts.sum() == draws
    assert counts[expected == 0].sum() == 0
    common = expected * draws >= 5
    observed, wanted = counts[common], expected[common] * draws
    if not common.all() and draws - wanted.sum() > 1e-6:  # the rare ones together
        observed = torch.cat((observed, counts[~common].sum().view(1)))
        wanted = torch.cat((wanted, (draws - wanted.sum()).view(1)))
    degrees = len(wanted) - 1
    chi_square = ((observed - wanted) ** 2 / wanted).sum().item()
    # Wilson-Hilferty: the 99.9th percentile of chi-square; seeds are fixed, so this never flickers.
    bound = degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3 if degrees else 1e-9
    assert chi_square <= bound


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(1.0, min_p=0.1),
        SamplingParams(1.8, min_p=0.02),
        SamplingParams(0.7, top_p=0.9, min_p=0.05),
        SamplingParams(1.5, top_k=12, min_p=0.1),
        SamplingParams(2.0, top_p=0.7, top_k=25, min_p=0.15),
        SamplingParams(3.0, top_p=0.95),
    ],
)
def test_what_can_be_drawn_is_what_transformers_keeps(sampling: SamplingParams) -> None:
    warpers: list[Any] = [TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    warpers += [TopPLogitsWarper(sampling.top_p), MinPLogitsWarper(sampling.min_p)]
    ids = torch.zeros(1, 1, dtype=torch.long)
    for seed in range(4):
        row = logits(20 + seed)
        scores: torch.Tensor = LogitsProcessorList(warpers)(ids, row.clone())  # type: ignore[arg-type]
        kept = set(scores[0].isfinite().nonzero().flatten().tolist())
        drawn = set(sample(row.expand(3000, -1), [Draw(replace(sampling, seed=seed), 0) for seed in range(3000)]))
        assert drawn <= kept
        likely = set((scores[0].softmax(-1) > 0.01).nonzero().flatten().tolist())
        assert likely <= drawn


def test_greedy_is_the_likeliest_token() -> None:
    rows = logits(2, rows=5)
    assert sample(rows, [Draw(SamplingParams(), 3)] * 5) == rows.argmax(-1).tolist()


def test_the_same_seed_and_index_give_the_same_token_in_any_company() -> None:
    rows = logits(3, rows=7)
    params = [
        SamplingParams(1.0, seed=1),
        SamplingParams(),
        SamplingParams(0.9, top_p=0.9, seed=2),
        SamplingParams(1.3, top_k=9, seed=3),
        SamplingParams(1.1, top_p=0.6, top_k=20, seed=4),
        SamplingParams(0.7, seed=5),
        SamplingParams(1.4, seed=6, min_p=0.1),
    ]
    together = sample(rows, [Draw(p, 17) for p in params])
    alone = [sample(rows[i : i + 1], [Draw(p, 17)])[0] for i, p in enumerate(params)]
    reversed_ = sample(rows.flip(0), [Draw(p, 17) for p in params[::-1]])[::-1]
    assert together == alone == reversed_


def test_other_seeds_and_other_indices_draw_other_tokens() -> None:
    row = logits(4, spread=0.1)
    assert len({sample(row, [Draw(SamplingParams(1.0, seed=9), index)])[0] for index in range(50)}) > 10
    assert len({sample(row, [Draw(SamplingParams(1.0, seed=seed), 0)])[0] for seed in range(50)}) > 10


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(1.0), SamplingParams(1.0, top_p=0.5, top_k=5)])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_broken_logits_give_none_and_leave_the_other_rows_alone(sampling: SamplingParams, broken: float) -> None:
    rows = logits(5, rows=3)
    draws = [Draw(sampling, 0)] * 3
    whole = sample(rows, draws)
    rows[1, 7] = broken
    assert sample(rows, draws) == [whole[0], None, whole[2]]


def test_tokens_of_minus_infinity_are_never_drawn_and_a_row_of_nothing_else_is_broken() -> None:
    rows = logits(6, rows=2)
    rows[0, :-2] = float("-inf")
    rows[1] = float("-inf")
    for seed in range(30):
        first, second = sample(rows, [Draw(SamplingParams(5.0, seed=seed), 0)] * 2)
        assert first in (VOCABULARY - 2, VOCABULARY - 1)
        assert second is None


def test_a_temperature_near_zero_is_greedy_and_does_not_overflow() -> None:
    rows = logits(7, rows=4, spread=50.0)
    for temperature in (1e-3, 1e-30, 5e-324):
        assert sample(rows, [Draw(SamplingParams(temperature), 0)] * 4) == rows.argmax(-1).tolist()


def test_of_equally_likely_tokens_top_k_keeps_the_lower_ids() -> None:
    row = torch.zeros(1, VOCABULARY)
    drawn = {sample(row, [Draw(SamplingParams(1.0, top_k=3, seed=seed), 0)])[0] for seed in range(60)}
    assert drawn == {0, 1, 2}


def test_of_equally_likely_tokens_min_p_keeps_all() -> None:
    row = torch.zeros(1, 2000)
    drawn = {sample(row, [Draw(SamplingParams(1.0, min_p=1.0, seed=seed), 0)])[0] for seed in range(60)}
    assert len(drawn) > 50


def test_half_precision_logits_are_sampled_like_others() -> None:
    row = logits(8).bfloat16()
    draws = [Draw(SamplingParams(1.0, top_p=0.9, seed=3), 1)]
    assert sample(row, draws) == sample(row.float(), draws)


def test_uniform_numbers_are_spread_evenly_over_seeds_indices_and_tokens() -> None:
    keys = torch.tensor([[key(seed, index)] for seed in range(25) for index in range(25)])
    numbers = uniforms(keys, torch.arange(-1, 15).expand(len(keys), -1))
    assert numbers.dtype == torch.float64
    assert 0 < numbers.min() < numbers.max() < 1
    counts = torch.histc(numbers, bins=20, min=0, max=1)
    assert ((counts - 500) ** 2 / 500).sum() < 43.8  # 99.9th percentile of chi-square with 19 degrees
    assert len(set(numbers.flatten().tolist())) == numbers.numel()
    assert key(-1, 0) == key(2**64 - 1, 0)
    assert key(1, 2) != key(2, 1)


def test_a_uniform_number_is_that_of_splitmix64() -> None:
    # The first outputs of java.util.SplittableRandom(42), of which these are the upper 52 bits in the middle of a step.
    outputs = [-4767286540954276203, 2949826092126892291, 5139283748462763858]
    expected = [((output % 2**64 >> 12) + 0.5) * 2.0**-52 for output in outputs]
    assert uniforms(torch.tensor([[42]]), torch.tensor([[0, 1, 2]])).tolist() == [expected]


MANY = 30_000


def like_a_model(rows: int) -> torch.Tensor:
    """Few likely tokens, many that are not, all ids in a jumble."""
    generator = torch.Generator().manual_seed(11)
    return torch.stack([-0.5 * torch.randperm(MANY, generator=generator).float().sqrt() for _ in range(rows)])


@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(1.0, top_p=0.9), SamplingParams(1.0, top_k=50)]
)
def test_a_rounding_error_in_the_logits_changes_no_draw(sampling: SamplingParams) -> None:
    rows = like_a_model(100)
    noisy = rows + 3e-5 * torch.linspace(-1, 1, MANY)  # neighbours together, as a hidden state that is off does it
    for index in range(5):
        draws = [Draw(replace(sampling, seed=seed), index) for seed in range(len(rows))]
        assert sample(rows, draws) == sample(noisy, draws)


@pytest.mark.parametrize("likely", [0.0, 0.4, 0.999])
def test_rare_tokens_are_drawn_as_often_as_they_are_likely(likely: float) -> None:
    probabilities = torch.full((MANY,), (1 - likely) / MANY)
    probabilities[7] += likely
    draws = 600
    drawn = sample(
        probabilities.log().expand(draws, -1), [Draw(SamplingParams(1.0, seed=seed), 3) for seed in range(draws)]
    )
    rare = torch.tensor([token for token in drawn if token not in (None, 7)])
    expected = (1 - likely) * draws
    assert abs(len(rare) - expected) <= 3.5 * (expected * likely) ** 0.5 + 1
    counts = torch.histc(rare.float(), bins=10, min=0, max=MANY)
    assert ((counts - len(rare) / 10) ** 2).sum() <= 27.9 * (len(rare) / 10 + 1)  # 99.9th percentile, 9 degrees


def test_of_a_large_vocabulary_too_only_tokens_that_can_be_drawn_are() -> None:
    row = torch.full((1, MANY), float("-inf"))
    row[0, [17, 20_000, 29_999]] = torch.tensor([0.0, -20.0, -0.3])
    drawn = sample(row.expand(300, -1), [Draw(SamplingParams(2.0, seed=seed), 0) for seed in range(300)])
    assert set(drawn) == {17, 29_999}
