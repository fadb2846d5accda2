"""Penalties and bias, held against transformers' processors and against what OpenAI's documentation says."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

from gpu_consumers.penalties import LogitBias, TokenCounts, counts_for, penalize
from gpu_consumers.plan import SamplingParams

VOCABULARY = 30
PROMPT, OUTPUT = (3, 4, 4, 9, 3), (4, 7, 7, 7, 29)


def logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4


def counted(
    sampling: SamplingParams, prompt: tuple[int, ...] = PROMPT, output: tuple[int, ...] = OUTPUT
) -> TokenCounts:
    counts = counts_for(sampling)
    assert counts is not None
    counts.add(prompt, output=False)
    counts.add(output, output=True)
    return counts


def penalized(row: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    row = row.clone()
    penalize(row, [0], [counted(sampling)], [sampling])
    return row


@pytest.mark.parametrize("penalty", [1.3, 0.7, 2.0])
def test_repetition_is_penalized_as_in_transformers(penalty: float) -> None:
    row = logits()
    ids = torch.tensor([PROMPT + OUTPUT])
    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, row.clone())
    assert torch.equal(penalized(row, SamplingParams(repetition_penalty=penalty)), expected)


def test_presence_and_frequency_count_the_output_alone() -> None:
    row = logits()
    expected = row.clone()
    for token, count in Counter(OUTPUT).items():
        expected[0, token] -= 0.5 * count + 0.25
    found = penalized(row, SamplingParams(presence_penalty=0.25, frequency_penalty=0.5))
    assert torch.allclose(found, expected)
    assert torch.equal(found[0, [3, 9]], row[0, [3, 9]])


def test_repetition_comes_before_presence_and_frequency() -> None:
    row = torch.zeros(1, VOCABULARY)
    row[0, 7] = 8.0
    found = penalized(row, SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5))
    assert found[0, 7] == 8.0 / 2.0 - 1.0 - 3 * 0.5


def test_negative_penalties_raise_what_was_said() -> None:
    row = logits()
    found = penalized(row, SamplingParams(presence_penalty=-1.0))
    assert torch.equal((found > row).nonzero()[:, 1], torch.tensor(sorted(set(OUTPUT))))


def test_each_row_has_its_own_and_the_others_are_not_touched() -> None:
    rows = logits(4)
    params = [
        SamplingParams(repetition_penalty=1.5),
        SamplingParams(presence_penalty=2.0),
        SamplingParams(frequency_penalty=1.0),
    ]
    outputs: list[tuple[int, ...]] = [(1, 2), (5, 5, 6), ()]
    found = rows.clone()
    penalize(found, [2, 0, 3], [counted(s, (8,), o) for s, o in zip(params, outputs, strict=True)], params)
    assert torch.equal(found[1], rows[1])
    for at, sampling, output in zip([2, 0, 3], params, outputs, strict=True):
        alone = rows[at : at + 1].clone()
        penalize(alone, [0], [counted(sampling, (8,), output)], [sampling])
        assert torch.equal(found[at : at + 1], alone)
    assert torch.equal(found[3], rows[3]), "nothing was said yet, and its prompt does not count"


def test_neutral_values_need_no_counting() -> None:
    assert counts_for(SamplingParams(0.7, 0.9, 5, 3, 0.1)) is None


def test_impossible_tokens_stay_impossible() -> None:
    row = torch.full((1, VOCABULARY), float("-inf"))
    found = penalized(row, SamplingParams(repetition_penalty=1.5, presence_penalty=-2.0))
    assert torch.equal(found, row)


def test_bias_is_added_as_in_transformers_and_twice_where_it_is_named_twice() -> None:
    row = logits()
    biases = ((3, 5.0), (9, -100.0), (3, 1.0))
    expected = SequenceBiasLogitsProcessor([[[3], 6.0], [[9], -100.0]])(torch.tensor([[1]]), row.clone())
    found = row.clone()
    LogitBias(biases, torch.device("cpu")).add_to(found[0])
    assert torch.equal(found, expected)
