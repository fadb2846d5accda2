from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from gpu_consumers.engines.scoring import ScoresTokens
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.engines.torch.scoring import CHUNK_TOKENS, TorchDistributions, scored
from gpu_consumers.errors import EngineFailedError
from tests.oracle import Oracle
from tests.tiny_model import make_tiny_model
from tests.unit.gpu_consumers.engines.torch.conftest import VARIANTS, VOCABULARY

TOKENS = tuple((7 * i * i + 3 * i) % (VOCABULARY - 3) + 3 for i in range(CHUNK_TOKENS + 50))


def losses_of(logits: torch.Tensor, token_ids: Sequence[int]) -> list[float]:
    targets = torch.tensor(token_ids[1:])
    losses: list[float] = torch.nn.functional.cross_entropy(logits[:-1], targets, reduction="none").tolist()
    return losses


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_greedy_tokens_are_transformers_own(
    model_directory: Callable[[str], Path], kernels_dir: Path, variant: str, compiled: bool
) -> None:
    directory = model_directory(variant)
    engine = load_torch_engine(
        directory, dtype="float32", slots=2, max_context_tokens=256, kernels_dir=kernels_dir if compiled else None
    )
    expected = Oracle(directory).logits(TOKENS)
    found = engine.score(TOKENS, 1)
    assert found.losses == pytest.approx(losses_of(expected, TOKENS), abs=1e-3)
    assert sum(found.losses) / len(found.losses) == pytest.approx(
        sum(losses_of(expected, TOKENS)) / (len(TOKENS) - 1), abs=1e-5
    )
    assert sum(a == b for a, b in zip(found.likeliest, expected[:-1].argmax(-1).tolist(), strict=True)) >= 175
    assert engine.score(TOKENS, CHUNK_TOKENS + 9).losses == found.losses[CHUNK_TOKENS + 8 :]
    assert engine.free_blocks == engine.info.kv_blocks


def test_kept_distributions_are_those_of_the_places_asked_for(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path)
    engine = load_torch_engine(directory, dtype="float32", slots=1, max_context_tokens=256)
    kept = engine.score(TOKENS, 10, (12, 10, len(TOKENS) - 1)).distributions
    assert isinstance(kept, TorchDistributions)
    expected = Oracle(directory).logits(TOKENS)[[9, 11, -2]].log_softmax(-1)
    torch.testing.assert_close(kept.log_probs, expected, atol=1e-3, rtol=0)


def test_an_engine_can_be_asked_what_its_weights_and_keys_take(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path)
    engine = load_torch_engine(directory, dtype="bfloat16", slots=1, max_context_tokens=64)
    assert isinstance(engine, ScoresTokens)
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert engine.weight_bytes == 2 * (2 * 384 * 64 + 2 * layer + 64)
    assert engine.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2


def distributions(*rows: tuple[float, ...]) -> TorchDistributions:
    return TorchDistributions(torch.tensor(rows).log())


def test_divergence_is_that_of_kullback_and_leibler() -> None:
    a, b = distributions((0.5, 0.5), (0.9, 0.1)), distributions((0.5, 0.5), (0.5, 0.5))
    assert a.divergences(b) == pytest.approx([0.0, 0.368064], abs=1e-5)
    assert a.divergences(a) == [0.0, 0.0]
    with pytest.raises(ValueError, match="distributions of"):
        a.divergences(distributions((0.5, 0.5)))


def test_logits_that_are_no_numbers_are_a_clear_error() -> None:
    logits = torch.zeros(3, 5)
    logits[1] = float("nan")
    assert len(scored([logits[:1]], (0, 1), 1, (), vocabulary_size=5).losses) == 1
    with pytest.raises(EngineFailedError, match="no numbers, from its token 1 on"):
        scored([logits], (0, 1, 2), 1, (), vocabulary_size=5)
