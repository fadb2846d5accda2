from __future__ import annotations

import math

import pytest
import torch

from gpu_consumers.logprobs import LEAST, logprobs_of

VOCABULARY = 50


def logits(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(3)) * 3).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_those_of_log_softmax(dtype: torch.dtype) -> None:
    rows = logits(3, dtype)
    expected = rows.float().log_softmax(-1)
    told = logprobs_of(rows, [4, 0, 49], [0, 5, 20])
    for row, (chosen, logprobs) in enumerate(zip([4, 0, 49], told, strict=True)):
        assert logprobs.chosen == pytest.approx(expected[row, chosen].item(), abs=1e-5)
        best = expected[row].sort(descending=True, stable=True)
        count = len(logprobs.top)
        assert [token for token, _ in logprobs.top] == best.indices[:count].tolist()
        assert [value for _, value in logprobs.top] == pytest.approx(best.values[:count].tolist(), abs=1e-5)
    assert [len(logprobs.top) for logprobs in told] == [0, 5, 20]


def test_the_probabilities_of_all_tokens_sum_to_one() -> None:
    [told] = logprobs_of(logits(1), [0], [VOCABULARY])
    assert sum(math.exp(value) for _, value in told.top) == pytest.approx(1.0, abs=1e-5)


def test_of_equally_likely_tokens_the_lower_id_comes_first() -> None:
    [told] = logprobs_of(torch.zeros(1, 4), [3], [4])
    assert [token for token, _ in told.top] == [0, 1, 2, 3]
    assert told.chosen == pytest.approx(-math.log(4))


def test_an_impossible_token_has_a_finite_value_and_a_small_vocabulary_has_no_more_than_it_has() -> None:
    rows = torch.tensor([[0.0, float("-inf"), 0.0]])
    [told] = logprobs_of(rows, [1], [20])
    assert told.chosen == LEAST
    assert [token for token, _ in told.top] == [0, 2, 1]
    assert told.top[2][1] == LEAST
