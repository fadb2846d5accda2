"""Guided answers of a model, beside others, resumed and prepared."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_consumers.engine import PreparesSchemas
from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.plan import SamplingParams
from models.tokenizer import open_tokenizer
from tests.batching import Request, run_batch
from tests.tiny_model import EOS_TOKEN, SPECIAL_TOKENS, make_tiny_model

ARRAY = '{"type": "array", "items": {"enum": ["river", "sea"]}, "minItems": 2, "maxItems": 4}'
OTHERS = (
    SamplingParams(),
    SamplingParams(1.0, seed=1),
    SamplingParams(1.2, min_p=0.05, seed=5, frequency_penalty=0.7),
    SamplingParams(repetition_penalty=1.4, logit_bias=((9, 2.5),), top_logprobs=2),
)


@pytest.fixture
def guiding(tmp_path: Path) -> Iterator[TorchEngine]:
    engine = load_torch_engine(make_tiny_model(tmp_path), dtype="float32", slots=3, max_context_tokens=256)
    engine.guide(open_tokenizer(str(tmp_path)))
    yield engine
    engine.close()


def guided(seed: int, emitted: tuple[int, ...] = ()) -> Request:
    sampling = SamplingParams(1.0, seed=seed, json_schema=ARRAY, frequency_penalty=0.1)
    return Request((40, 50, 60), 120, sampling, emitted, ends_at=SPECIAL_TOKENS.index(EOS_TOKEN))


def test_guided_answers_obey_their_schema_beside_others_that_are_as_they_would_be(
    guiding: TorchEngine, tmp_path: Path
) -> None:
    tokenizer = open_tokenizer(str(tmp_path))
    alone = [Request((20 + n, 30), 20, OTHERS[n]) for n in range(4)]
    run_batch(guiding, alone)
    others = [Request(r.prompt, 20, r.sampling) for r in alone]
    answers = [guided(seed) for seed in range(4)]
    run_batch(guiding, [r for pair in zip(answers, others, strict=True) for r in pair], step_tokens=4)
    assert [r.output for r in others] == [r.output for r in alone]
    for answer in answers:
        assert answer.failure is None
        said = json.loads(tokenizer.decode(answer.output))
        assert 2 <= len(said) <= 4
        assert set(said) <= {"river", "sea"}
    assert len({tuple(answer.output) for answer in answers}) > 1


def test_a_guided_answer_that_is_resumed_anywhere_is_the_same(guiding: TorchEngine) -> None:
    [whole] = run_batch(guiding, [guided(9)])
    resumed = [guided(9, tuple(whole.output[:cut])) for cut in range(1, len(whole.output))]
    run_batch(guiding, resumed, chunk_tokens=2)
    assert [list(r.emitted) + r.output for r in resumed] == [whole.output] * len(resumed)


def test_a_schema_is_compiled_off_the_step_path(guiding: TorchEngine) -> None:
    told: list[str | None] = []
    ready = threading.Event()

    def tell(refusal: str | None) -> None:
        told.append(refusal)
        ready.set()

    assert isinstance(guiding, PreparesSchemas)
    kept = guiding.prepare_schema(ARRAY, tell)
    assert ready.wait(30)
    assert told == [None]
    assert kept is not None


def test_warming_up_covers_guided_draws(guiding: TorchEngine) -> None:
    free = guiding.free_blocks
    guiding.warm_up()
    assert guiding.free_blocks == free
    [answer] = run_batch(guiding, [guided(1)])
    assert answer.failure is None


def test_the_token_limit_cuts_a_guided_answer_where_it_is(guiding: TorchEngine) -> None:
    [whole] = run_batch(guiding, [guided(9)])
    short = guided(9)
    short.output_tokens = 5
    run_batch(guiding, [short])
    assert short.output == whole.output[:5]


def test_a_schema_that_can_not_be_followed_fails_its_sequence_alone(guiding: TorchEngine) -> None:
    [alone] = run_batch(guiding, [Request((20, 30), 9)])
    bad = Request((40, 50), 9, SamplingParams(json_schema='{"type": "objec"}'))
    strayed = guided(1, emitted=(40, 41))
    good = Request((20, 30), 9)
    run_batch(guiding, [bad, strayed, good])
    assert "Invalid type: objec" in str(bad.failure)
    assert "doesn't satisfy the grammar" in str(strayed.failure)
    assert (good.output, good.failure) == (alone.output, None)
