"""What a sequence asks for is a function of its tokens: interrupted anywhere and fed anew in any pieces, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.sampler import Sampler
from gpu_consumers.grammar import GrammarCompiler
from gpu_consumers.plan import Admission, Decode, Logprobs, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.sampling import Draw
from models.tokenizer import ByteTokenizer

EOS = ByteTokenizer.EOS
VOCABULARY = EOS + 1
OUTPUT_TOKENS = 25
SCHEMAS: tuple[str | None, ...] = (
    None,
    '{"type": "object"}',
    '{"type": "array", "items": {"type": ["string", "number"]}}',
    json.dumps({"type": "object", "properties": {"é": {"type": "boolean"}, "b": {"$ref": "#"}}, "required": ["é"]}),
)
COMPILER = GrammarCompiler(ByteTokenizer(), vocabulary_size=VOCABULARY, eos_token_ids={EOS})

penalties = st.sampled_from([-1.5, 0.0, 0.4, 2.0])
samplings = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_p=st.sampled_from([0.5, 1.0]),
    top_k=st.sampled_from([0, 5]),
    seed=st.integers(0, 3),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([0.8, 1.0, 1.6]),
    presence_penalty=penalties,
    frequency_penalty=penalties,
    logit_bias=st.sampled_from([(), ((ord("a"), 4.0), (ord('"'), -2.0))]),
    top_logprobs=st.sampled_from([None, 0, 3]),
    json_schema=st.sampled_from(SCHEMAS),
)
prompts = st.lists(st.integers(97, 102), min_size=1, max_size=12).map(tuple)


def logits(tokens: tuple[int, ...]) -> torch.Tensor:
    """Of a model that sees where it is and the last token. It likes a few letters, so that they come again."""
    generator = torch.Generator().manual_seed(1000 * len(tokens) + tokens[-1])
    row = torch.randn(1, VOCABULARY, generator=generator)
    row[:, 97:103] += 3.0
    return row


def pieces_of(tokens: tuple[int, ...], start: int, cuts: list[int]) -> list[PrefillChunk]:
    """All from `start` on, cut anywhere."""
    places = sorted({start, len(tokens), *(cut for cut in cuts if start < cut < len(tokens))})
    return [PrefillChunk(1, tokens[a:b], a, last=b == len(tokens)) for a, b in pairwise(places)]


def answer(
    sampling: SamplingParams,
    prompt: tuple[int, ...],
    emitted: tuple[int, ...] = (),
    *,
    cached: int = 0,
    cuts: list[int],
    company: Callable[[int], SamplingParams | None] = lambda step: None,
) -> tuple[list[int], list[Logprobs]]:
    """Output behind what was emitted, in slot 1; in each step `company` may be drawn beside it, in slot 0."""
    sampler = Sampler(torch.device("cpu"), COMPILER)
    tokens = prompt + emitted
    admission = Admission(1, sampling, 99, len(emitted), cached_token_ids=tokens[:cached], prompt_tokens=len(prompt))
    assert sampler.begin(StepPlan(admitted=(admission,)), ()) == {}
    for chunk in pieces_of(tokens, cached, cuts):
        sampler.feed(StepWork((chunk,), (), {}))
    output: list[int] = []
    told: list[Logprobs] = []
    while len(emitted) + len(output) < OUTPUT_TOKENS and EOS not in output:
        rows, slots = [logits(tokens + tuple(output))], [1]
        draws = [Draw(sampling, len(emitted) + len(output))]
        if (other := company(len(output))) is not None:
            sampler.begin(StepPlan(released=(0,), admitted=(Admission(0, other, 99),)), ())
            sampler.feed(StepWork((PrefillChunk(0, (98, 99), 0, True),), (), {}))
            rows, slots, draws = [logits((97,)), *rows], [0, *slots], [Draw(other, 0), *draws]
        result = sampler.draw(torch.cat(rows), slots, draws)
        assert 1 not in result.failures
        output.append(result.tokens[1])
        told += [result.logprobs[1]] if 1 in result.logprobs else []
        sampler.feed(StepWork((), (Decode(1, output[-1], len(tokens) + len(output) - 1),), {}))
    return output, told


@settings(max_examples=60)
@given(sampling=samplings, prompt=prompts, data=st.data())
def test_a_sequence_that_is_resumed_anywhere_goes_on_as_if_it_had_not_been_interrupted(
    sampling: SamplingParams, prompt: tuple[int, ...], data: st.DataObject
) -> None:
    whole, told = answer(sampling, prompt, cuts=[])
    cut = data.draw(st.integers(0, len(whole) - 1))
    cached = data.draw(st.integers(0, len(prompt) + cut - 1))
    cuts = data.draw(st.lists(st.integers(0, len(prompt) + cut), max_size=4))
    resumed, told_again = answer(sampling, prompt, tuple(whole[:cut]), cached=cached, cuts=cuts)
    assert whole[:cut] + resumed == whole
    assert told_again == (told[cut:] if told else [])


@settings(max_examples=60)
@given(sampling=samplings, prompt=prompts, others=st.lists(st.none() | samplings, min_size=1, max_size=4))
def test_company_changes_nothing(
    sampling: SamplingParams, prompt: tuple[int, ...], others: list[SamplingParams | None]
) -> None:
    alone = answer(sampling, prompt, cuts=[])
    assert answer(sampling, prompt, cuts=[], company=lambda step: others[step % len(others)]) == alone


@pytest.mark.parametrize("schema", [schema for schema in SCHEMAS if schema is not None])
@settings(max_examples=40)
@given(sampling=samplings, prompt=prompts)
def test_guided_output_is_the_beginning_of_json_and_ends_only_where_that_is_whole(
    schema: str, sampling: SamplingParams, prompt: tuple[int, ...]
) -> None:
    guided = SamplingParams(sampling.temperature, seed=sampling.seed, json_schema=schema)
    output, _ = answer(guided, prompt, cuts=[])
    matcher = COMPILER.grammar(schema).matcher()
    for token in output[:-1]:
        matcher.read([token])
        assert matcher.failure is None
    if output[-1] == EOS:
        assert matcher.may_end
        json.loads(bytes(output[:-1]))
