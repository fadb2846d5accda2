"""The sampler over logits that no model made: what sequences ask for, in what order it applies, and who fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.sampler import Sampler, allow
from gpu_consumers.grammar import GrammarCompiler
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan, StepResult
from gpu_consumers.sampling import Draw, sample
from models.tokenizer import ByteTokenizer

VOCABULARY = 257
EOS = ByteTokenizer.EOS
SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
PROMPT = (10, 11, 10, 65)


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    compiler = GrammarCompiler(ByteTokenizer(), vocabulary_size=VOCABULARY, eos_token_ids={EOS})
    yield Sampler(torch.device("cpu"), compiler)
    compiler.close()


def admit(sampler: Sampler, *asked: SamplingParams, output: tuple[int, ...] = ()) -> dict[int, str]:
    """Slots 0, 1, ... with a prompt and what earlier attempts said, both prefilled."""
    admitted = tuple(
        Admission(slot, sampling, 99, len(output), prompt_tokens=len(PROMPT)) for slot, sampling in enumerate(asked)
    )
    refused = sampler.begin(StepPlan(admitted=admitted), ())
    chunks = tuple(PrefillChunk(slot, PROMPT + output, 0, True) for slot in range(len(asked)) if slot not in refused)
    sampler.feed(StepWork(chunks, (), {}))
    return refused


def drawn(sampler: Sampler, rows: torch.Tensor, *asked: SamplingParams, index: int = 0) -> StepResult:
    return sampler.draw(rows, range(len(asked)), [Draw(sampling, index) for sampling in asked])


def test_bias_penalties_and_filters_apply_in_the_order_of_transformers(sampler: Sampler) -> None:
    sampling = SamplingParams(0.8, top_k=3, repetition_penalty=1.4, logit_bias=((10, 2.0), (20, -3.0)))
    admit(sampler, sampling, output=(20, 30))
    rows = logits(1, 4)
    processors: list[Any] = [
        SequenceBiasLogitsProcessor([[[10], 2.0], [[20], -3.0]]),
        RepetitionPenaltyLogitsProcessor(1.4),
        TemperatureLogitsWarper(0.8),
        TopKLogitsWarper(3),
    ]
    scores = LogitsProcessorList(processors)(torch.tensor([(*PROMPT, 20, 30)]), rows.clone())  # type: ignore[arg-type]
    expected = sample(scores, [Draw(SamplingParams(1.0, top_k=3, seed=7), 2)])[0]
    seeded = SamplingParams(0.8, top_k=3, seed=7)
    assert sampler.draw(rows, [0], [Draw(seeded, 2)]).tokens == {0: expected}


def test_presence_and_frequency_are_of_the_output_fed_so_far(sampler: Sampler) -> None:
    sampling = SamplingParams(frequency_penalty=1.0)
    admit(sampler, sampling)
    rows = torch.zeros(1, VOCABULARY)
    rows[0, 10], rows[0, 30] = 1.5, 1.0
    assert drawn(sampler, rows, sampling).tokens == {0: 10}, "it stands in the prompt alone"
    sampler.feed(StepWork((), (Decode(0, 10, 4),), {}))
    assert drawn(sampler, rows, sampling).tokens == {0: 30}
    sampler.feed(StepWork((), (Decode(0, 30, 5),), {}))
    assert drawn(sampler, rows, sampling).tokens == {0: 10}
    sampler.begin(StepPlan(released=(0,), admitted=(Admission(0, sampling, 99),)), ())
    assert drawn(sampler, rows, sampling).tokens == {0: 10}, "another sequence starts anew"


def test_without_a_word_of_where_the_prompt_ends_all_that_is_prefilled_is_prompt(sampler: Sampler) -> None:
    sampling = SamplingParams(presence_penalty=5.0)
    rows = torch.zeros(1, VOCABULARY)
    rows[0, 10], rows[0, 20] = 3.0, 1.0
    sampler.begin(StepPlan(admitted=(Admission(0, sampling, 99, cached_token_ids=(10,)),)), ())
    sampler.feed(StepWork((PrefillChunk(0, (10,), 1, True),), (), {}))
    assert drawn(sampler, rows, sampling).tokens == {0: 10}


def test_cached_tokens_count_like_those_that_were_run(sampler: Sampler) -> None:
    sampling = SamplingParams(presence_penalty=5.0)
    rows = torch.zeros(1, VOCABULARY)
    rows[0, 10], rows[0, 20] = 3.0, 1.0
    cached = Admission(0, sampling, 99, 1, cached_token_ids=(9, 10), prompt_tokens=1)
    sampler.begin(StepPlan(admitted=(cached,)), ())
    assert drawn(sampler, rows, sampling).tokens == {0: 20}


def test_log_probabilities_are_those_of_the_model_whatever_changed_the_draw(sampler: Sampler) -> None:
    sampling = SamplingParams(1.5, logit_bias=((65, 100.0),), repetition_penalty=1.7, top_k=1, top_logprobs=2)
    plain = SamplingParams()
    admit(sampler, sampling, plain)
    rows = logits(2, 5)
    result = drawn(sampler, rows, sampling, plain)
    expected = rows.log_softmax(-1)
    assert result.tokens[0] == 65
    assert set(result.logprobs) == {0}
    assert result.logprobs[0].chosen == pytest.approx(expected[0, 65].item(), abs=1e-5)
    best = expected[0].topk(2)
    assert [token for token, _ in result.logprobs[0].top] == best.indices.tolist()
    assert [value for _, value in result.logprobs[0].top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_the_logits_of_the_model_are_left_as_they_are(sampler: Sampler) -> None:
    asked = (SamplingParams(logit_bias=((1, 5.0),), presence_penalty=1.0), SamplingParams(json_schema=SCHEMA))
    admit(sampler, *asked)
    rows = logits(2)
    before = rows.clone()
    drawn(sampler, rows, *asked)
    assert torch.equal(rows, before)


def test_a_guided_answer_is_json_that_obeys_and_ends_with_the_end(sampler: Sampler) -> None:
    sampling = SamplingParams(1.0, seed=3, json_schema=SCHEMA)
    admit(sampler, sampling)
    said: list[int] = []
    while EOS not in said:
        assert len(said) < 500
        token = drawn(sampler, logits(1, len(said)), sampling, index=len(said)).tokens[0]
        said.append(token)
        sampler.feed(StepWork((), (Decode(0, token, len(PROMPT) + len(said) - 1),), {}))
    assert isinstance(json.loads(bytes(said[:-1]))["a"], int)


def test_a_guided_answer_goes_on_behind_what_an_earlier_attempt_said(sampler: Sampler) -> None:
    sampling = SamplingParams(json_schema=SCHEMA)
    admit(sampler, sampling, output=tuple(b'{"a":7}'))
    assert drawn(sampler, logits(1), sampling).tokens == {0: EOS}


def test_what_the_grammar_never_said_fails_with_the_reason(sampler: Sampler) -> None:
    sampling = SamplingParams(json_schema=SCHEMA)
    admit(sampler, sampling, output=tuple(b"[1"))
    assert "doesn't satisfy the grammar" in drawn(sampler, logits(1), sampling).failures[0]


@pytest.mark.parametrize(
    ("schema", "reason"), [('{"type": "objec"}', "Invalid type"), ('{"not": {}}', "Unimplemented"), ("{", "no JSON")]
)
def test_a_schema_that_can_not_be_compiled_fails_its_slot_alone(sampler: Sampler, schema: str, reason: str) -> None:
    refused = admit(sampler, SamplingParams(), SamplingParams(json_schema=schema))
    assert list(refused) == [1]
    assert reason in refused[1]


def test_without_grammars_a_guided_sequence_is_refused() -> None:
    assert "tokenizer" in admit(Sampler(torch.device("cpu")), SamplingParams(json_schema=SCHEMA))[0]


BAD = [
    (SamplingParams(), "nan", "not numbers"),
    (SamplingParams(json_schema=SCHEMA), "nan", "not numbers"),
    (SamplingParams(presence_penalty=1.0), "inf", "not numbers"),
    (SamplingParams(logit_bias=((10, 3e38),), repetition_penalty=1e-3), "fine", "leave no token"),
    (SamplingParams(repetition_penalty=1e-45), "fine", "leave no token"),
    (SamplingParams(json_schema=SCHEMA), "only a letter", "leave no token"),
]


@pytest.mark.parametrize(("asked", "broken", "reason"), BAD)
def test_who_can_not_be_drawn_fails_alone_and_the_others_draw_what_they_would(
    sampler: Sampler, asked: SamplingParams, broken: str, reason: str
) -> None:
    good = (SamplingParams(), SamplingParams(1.0, seed=1, presence_penalty=0.5), SamplingParams(json_schema=SCHEMA))
    rows = logits(4, 6)
    admit(sampler, *good)
    expected = drawn(sampler, rows[:3], *good).tokens
    sampler.begin(StepPlan(released=(0, 1, 2)), ())
    admit(sampler, *good, asked)
    if broken in ("nan", "inf"):
        rows[3, ord("z")] = float(broken)
    elif broken == "only a letter":
        rows[3] = float("-inf")
        rows[3, ord("z")] = 1.0
    result = drawn(sampler, rows, *good, asked)
    assert result.tokens == expected
    assert list(result.failures) == [3]
    assert reason in result.failures[3]


def test_half_precision_logits_are_changed_in_single_precision(sampler: Sampler) -> None:
    """A bias of less than a step of bfloat16 decides, where it is all that differs."""
    sampling = SamplingParams(logit_bias=((7, 0.001),))
    admit(sampler, sampling)
    rows = torch.full((1, VOCABULARY), 20.0, dtype=torch.bfloat16)
    assert drawn(sampler, rows, sampling).tokens == {0: 7}


def test_masks_shorter_and_longer_than_the_vocabulary_are_fitted() -> None:
    rows = torch.zeros(3, 20)
    allow(rows, [0, 2], [bytes([0b101]), bytes([0, 0, 0xFF, 0xFF])])
    assert rows[0].isfinite().nonzero().flatten().tolist() == [0, 2]
    assert rows[1].isfinite().all()
    assert rows[2].isfinite().nonzero().flatten().tolist() == [16, 17, 18, 19]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_cuda_the_same_is_drawn() -> None:
    compiler = GrammarCompiler(ByteTokenizer(), vocabulary_size=VOCABULARY, eos_token_ids={EOS})
    asked = (
        SamplingParams(),
        SamplingParams(1.0, seed=1, min_p=0.05),
        SamplingParams(1.0, seed=2, repetition_penalty=1.3, frequency_penalty=0.5),
        SamplingParams(logit_bias=((9, 5.0),), top_logprobs=3),
        SamplingParams(1.0, seed=3, json_schema=SCHEMA, presence_penalty=0.5),
    )
    results = []
    for device in ("cpu", "cuda"):
        sampler = Sampler(torch.device(device), compiler)
        admit(sampler, *asked, output=tuple(b'{"a":'))
        results.append(drawn(sampler, logits(len(asked), 8).to(device), *asked))
    compiler.close()
    on_cpu, on_cuda = results
    assert on_cuda.tokens == on_cpu.tokens
    tops = [dict(result.logprobs[3].top) for result in (on_cpu, on_cuda)]
    assert tops[1] == pytest.approx(tops[0], abs=1e-4)
