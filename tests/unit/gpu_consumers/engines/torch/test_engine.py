from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from eventlog.clock import monotonic
from gpu_consumers.engine import KvUse
from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.throughput import measure_throughput
from tests.batching import Request, run_batch
from tests.oracle import Oracle
from tests.unit.gpu_consumers.engines.torch.conftest import VARIANTS, VOCABULARY

Directory = Callable[[str], Path]
LENGTHS = (1, 2, 17, 63, 64, 65, 100, 130)


def prompts(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Token ids from 3 up, lengths around the size of a KV block among them."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(3, VOCABULARY) for _ in range(LENGTHS[i % len(LENGTHS)])) for i in range(count)]


def engine_of(
    directory: Path, *, slots: int = 4, dtype: str = "float32", device: str = "cpu", kernels_dir: Path | None = None
) -> TorchEngine:
    return load_torch_engine(
        directory, dtype=dtype, device=device, slots=slots, max_context_tokens=256, kernels_dir=kernels_dir
    )


def assert_equal_to_generate(requests: list[Request], oracle: Oracle, **options: Any) -> None:
    compared = 0
    for request in requests:
        expected = oracle.answer(request.tokens, request.output_tokens, **options)
        assert request.output[: len(expected)] == expected
        compared += len(expected)
    assert compared > 0.7 * sum(r.output_tokens for r in requests), "near ties left too little to compare"


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_request_of_a_mixed_batch_equals_generate(model_directory: Directory, variant: str) -> None:
    directory = model_directory(variant)
    requests = [Request(p, output_tokens=20 + 7 * (i % 3)) for i, p in enumerate(prompts(8))]
    run_batch(engine_of(directory), requests, step_tokens=90)
    assert_equal_to_generate(requests, Oracle(directory))
    assert len({token for request in requests for token in request.output}) > VOCABULARY // 4


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_compiled_kernels_too_every_request_of_a_mixed_batch_equals_generate(
    model_directory: Directory, kernels_dir: Path, variant: str
) -> None:
    directory = model_directory(variant)
    requests = [Request(p, output_tokens=20 + 7 * (i % 3)) for i, p in enumerate(prompts(8))]
    run_batch(engine_of(directory, kernels_dir=kernels_dir), requests, step_tokens=90)
    assert_equal_to_generate(requests, Oracle(directory))


def answer(engine: TorchEngine, tenant: str, prompt: tuple[int, ...], output_tokens: int = 8) -> tuple[int, list[int]]:
    """(tokens that were cached, output) of one sequence by itself in slot 0."""
    cached = engine.cached_tokens(tenant, prompt)
    admission = Admission(0, SamplingParams(), 256, tenant=tenant, cached_token_ids=prompt[:cached])
    chunk = PrefillChunk(0, prompt[cached:], cached, True)
    output = [engine.execute(StepPlan(admitted=(admission,), prefills=(chunk,))).tokens[0]]
    while len(output) < output_tokens:
        decode = Decode(0, output[-1], len(prompt) + len(output) - 1)
        output.append(engine.execute(StepPlan(decodes=(decode,))).tokens[0])
    engine.execute(StepPlan(released=(0,)))
    return cached, output


def caching(directory: Path, kernels_dir: Path | None = None, cache_bytes: int = 1 << 20) -> TorchEngine:
    return load_torch_engine(
        directory, dtype="float32", slots=4, max_context_tokens=256, prefix_cache_bytes=cache_bytes,
        kernels_dir=kernels_dir,
    )  # fmt: skip


def test_a_prompt_that_begins_like_an_earlier_one_is_answered_from_its_cache_and_alike(
    model_directory: Directory,
) -> None:
    directory = model_directory("grouped")
    engine, fresh = caching(directory), caching(directory, cache_bytes=0)
    start = prompts(8)[7] + prompts(8)[6][:20]  # 150 tokens: two blocks and a part
    assert answer(engine, "acme", start)[0] == 0
    for prompt in (start, (*start[:140], 9, 8, 7), start[:64] + (5,) * 40, start[:64]):
        cached, output = answer(engine, "acme", prompt)
        assert cached == min(len(prompt) - 1, 140 if prompt[:128] == start[:128] else 64) // 64 * 64
        assert output == answer(fresh, "acme", prompt)[1]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("variant", ["grouped", "qwen3, sliding", "gemma3", "gpt2"])
def test_sequences_that_share_the_blocks_of_a_prefix_decode_side_by_side(
    model_directory: Directory, kernels_dir: Path, variant: str, compiled: bool
) -> None:
    directory = model_directory(variant)
    engine = caching(directory, kernels_dir if compiled else None)
    start = prompts(8)[7]
    answer(engine, "acme", start)
    requests = [Request((*start, token), 12) for token in (7, 8, 9)]
    admitted, chunks = [], []
    for slot, request in enumerate(requests):
        cached = request.prompt[: engine.cached_tokens("acme", request.prompt)]
        assert len(cached) == 128
        admitted.append(Admission(slot, SamplingParams(), 256, tenant="acme", cached_token_ids=cached))
        chunks.append(PrefillChunk(slot, request.prompt[128:], 128, True))
    tokens = engine.execute(StepPlan(admitted=tuple(admitted), prefills=tuple(chunks))).tokens
    for position in range(len(start) + 1, len(start) + 13):
        for slot, token in tokens.items():
            requests[slot].output.append(token)
        decodes = tuple(Decode(slot, token, position) for slot, token in tokens.items())
        tokens = engine.execute(StepPlan(decodes=decodes)).tokens
    assert_equal_to_generate(requests, Oracle(directory))


def test_an_answer_is_a_prefix_too(model_directory: Directory) -> None:
    """The next turn of a conversation begins with the last one."""
    engine = caching(model_directory("grouped"))
    prompt = prompts(8)[6]
    _, output = answer(engine, "acme", prompt, 40)
    turn = prompt + tuple(output) + (4, 5, 6)
    assert engine.cached_tokens("acme", turn) == 128


def test_nothing_is_shared_between_tenants(model_directory: Directory) -> None:
    engine = caching(model_directory("grouped"))
    prompt = prompts(8)[7]
    answer(engine, "acme", prompt)
    assert engine.cached_tokens("acme", prompt) == 128
    assert engine.cached_tokens("globex", prompt) == 0


def test_a_sequence_that_went_wrong_leaves_nothing_to_others(model_directory: Directory) -> None:
    engine = caching(model_directory("grouped"))
    prompt = prompts(8)[7]
    admission = Admission(0, SamplingParams(), 256, tenant="acme")
    engine.execute(StepPlan(admitted=(admission,), prefills=(PrefillChunk(0, prompt[:128], 0, False),)))
    assert engine.cached_tokens("acme", prompt) == 128
    engine.execute(StepPlan(prefills=(PrefillChunk(0, (VOCABULARY,), 128, True),)))
    assert engine.cached_tokens("acme", prompt) == 0
    engine.execute(StepPlan(released=(0,)))
    assert engine.free_blocks == 16


def test_a_plan_that_counts_on_what_is_not_cached_fails_that_sequence_alone(model_directory: Directory) -> None:
    engine = caching(model_directory("grouped"))
    prompt = prompts(8)[7]
    wrong = Admission(0, SamplingParams(), 256, tenant="acme", cached_token_ids=prompt[:64])
    right = Admission(1, SamplingParams(), 256, tenant="acme")
    chunks = (PrefillChunk(0, prompt[64:], 64, True), PrefillChunk(1, prompt, 0, True))
    result = engine.execute(StepPlan(admitted=(wrong, right), prefills=chunks))
    assert set(result.tokens) == {1}
    assert result.failures == {0: "the plan counts on cached tokens that are not there"}


def test_what_a_plan_releases_does_not_push_out_what_it_counts_on(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    block_bytes = 2 * 2 * 64 * 16 * 4 * 2  # layers, heads, tokens, head size, float32, keys and values
    engine = caching(directory, cache_bytes=2 * block_bytes)
    first, second = prompts(8)[7], tuple(reversed(prompts(8)[7]))
    _, expected = answer(engine, "acme", first, 1)
    assert engine.cached_tokens("acme", first) == 128
    admission = Admission(0, SamplingParams(), 256, tenant="acme")
    engine.execute(StepPlan(admitted=(admission,), prefills=(PrefillChunk(0, second, 0, True),)))
    again = Admission(0, SamplingParams(), 256, tenant="acme", cached_token_ids=first[:128])
    result = engine.execute(StepPlan((0,), (again,), (PrefillChunk(0, first[128:], 128, True),)))
    assert result.tokens == {0: expected[0]}


@pytest.mark.parametrize(("chunk_tokens", "step_tokens"), [(1, 8), (13, 40), (64, 64), (None, 256)])
def test_the_cut_of_prefill_chunks_changes_nothing(
    model_directory: Directory, chunk_tokens: int | None, step_tokens: int
) -> None:
    directory = model_directory("grouped")
    requests = [Request(p, 12) for p in prompts(6, seed=1)]
    run_batch(engine_of(directory), requests, chunk_tokens=chunk_tokens, step_tokens=step_tokens)
    assert_equal_to_generate(requests, Oracle(directory))


def test_a_few_sequences_far_apart_in_memory_are_gathered_and_equal_generate(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    long = Request(prompts(8, seed=2)[7], 40)
    # The first three hold the front of the memory and leave early; the long one stays behind, alone at the back.
    requests = [Request((5,) * 128, 2), Request((6,) * 128, 2), Request((7,) * 120, 2), long]
    run_batch(engine_of(directory), requests)
    assert_equal_to_generate([long], Oracle(directory))


def test_memory_is_all_given_back(model_directory: Directory) -> None:
    engine = engine_of(model_directory("grouped"))
    before = engine.free_blocks
    run_batch(engine, [Request(p, 5) for p in prompts(9)])
    assert engine.free_blocks == before
    engine.execute(StepPlan(admitted=(Admission(0, SamplingParams(), 9),), prefills=(PrefillChunk(0, (5,), 0, True),)))
    engine.close()
    assert engine.free_blocks == before


SAMPLED = (
    SamplingParams(0.9, seed=1),
    SamplingParams(1.1, top_p=0.9, seed=2),
    SamplingParams(1.2, top_k=20, seed=3),
    SamplingParams(0.8, top_p=0.8, top_k=30, seed=4),
    SamplingParams(),
    SamplingParams(1.2, min_p=0.05, seed=5, frequency_penalty=0.7),
    SamplingParams(repetition_penalty=1.4, presence_penalty=0.5, logit_bias=((9, 2.5), (11, -50.0)), top_logprobs=2),
)


def sampled_alone(directory: Path, prompt: tuple[int, ...], sampling: SamplingParams) -> list[int]:
    return run_batch(engine_of(directory, slots=1), [Request(prompt, 30, sampling)])[0].output


def test_seeded_sampling_is_independent_of_batch_mates(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    pairs = list(zip(prompts(2 * len(SAMPLED), seed=3), SAMPLED * 2, strict=True))
    together = run_batch(engine_of(directory), [Request(p, 30, s) for p, s in pairs], step_tokens=50)
    assert [r.output for r in together] == [sampled_alone(directory, p, s) for p, s in pairs]


@pytest.mark.parametrize("emitted", [1, 9, 29])
def test_a_sequence_resumed_elsewhere_goes_on_with_the_same_text(model_directory: Directory, emitted: int) -> None:
    directory = model_directory("grouped")
    pairs = list(zip(prompts(len(SAMPLED), seed=4), SAMPLED, strict=True))
    whole = [sampled_alone(directory, p, s) for p, s in pairs]
    resumed = [
        Request(p, 30 - emitted, s, emitted=tuple(text[:emitted])) for (p, s), text in zip(pairs, whole, strict=True)
    ]
    run_batch(engine_of(directory), resumed, chunk_tokens=31)
    assert [r.output for r in resumed] == [text[emitted:] for text in whole]


@pytest.mark.parametrize(
    ("sampling", "options"),
    [
        (SamplingParams(repetition_penalty=1.3), {"repetition_penalty": 1.3}),
        (
            SamplingParams(repetition_penalty=0.8, logit_bias=((9, 4.0), (30, -4.0))),
            {"repetition_penalty": 0.8, "sequence_bias": [[[9], 4.0], [[30], -4.0]]},
        ),
    ],
)
def test_penalized_answers_in_a_mixed_batch_equal_generate(
    model_directory: Directory, sampling: SamplingParams, options: dict[str, Any]
) -> None:
    directory = model_directory("grouped")
    penalized = [Request(p, 25, sampling) for p in prompts(4, seed=6)]
    plain = [Request(p, 25) for p in prompts(4, seed=7)]
    run_batch(engine_of(directory), [r for pair in zip(penalized, plain, strict=True) for r in pair], step_tokens=90)
    oracle = Oracle(directory)
    assert_equal_to_generate(plain, oracle)
    assert_equal_to_generate(penalized, oracle, **options)


def test_log_probabilities_are_those_of_the_model(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    told = Request(prompts(5)[4], 12, SamplingParams(1.0, seed=2, top_logprobs=3))
    silent = Request(prompts(5)[3], 12)
    run_batch(engine_of(directory), [told, silent])
    expected = Oracle(directory).logits(told.tokens + tuple(told.output))[len(told.tokens) - 1 : -1].log_softmax(-1)
    assert len(told.logprobs) == 12
    assert silent.logprobs == []
    for place, logprobs in enumerate(told.logprobs):
        assert logprobs.chosen == pytest.approx(expected[place, told.output[place]].item(), abs=1e-3)
        best = expected[place].topk(3).values.tolist()
        assert [value for _, value in logprobs.top] == pytest.approx(best, abs=1e-3)


@pytest.fixture
def poisoned(tmp_path: Path, model_directory: Directory) -> Path:
    """A copy of a model in which token id 7 turns whatever reads it into NaN."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(model_directory("grouped"))
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = float("nan")
    model.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Request((3, 7, 4), 5), "not numbers"),
        (Request((3,) * 70 + (7,) + (4,) * 70, 5), "not numbers"),
        (Request((3, VOCABULARY), 5), f"token id {VOCABULARY} is outside the vocabulary"),
        (Request((3, -1), 5), "token id -1 is outside the vocabulary"),
        (Request((3, 4), 300), "max_tokens is 302"),
        (Request((3, 4), 5, SamplingParams(temperature=float("nan"))), "temperature is nan"),
        (Request((3, 7, 4), 5, SamplingParams(presence_penalty=1.0, top_logprobs=3)), "not numbers"),
        (Request((3, 4), 5, SamplingParams(repetition_penalty=0.0)), "repetition_penalty is 0.0"),
        (Request((3, 4), 5, SamplingParams(repetition_penalty=1e-45)), "leave no token"),
        (Request((3, 4), 5, SamplingParams(logit_bias=((VOCABULARY, 1.0),))), f"token {VOCABULARY}, which is outside"),
        (Request((3, 4), 5, SamplingParams(logit_bias=((5, float("nan")),))), "logit_bias of token 5 is nan"),
        (Request((3, 4), 5, SamplingParams(json_schema='{"type": "object"}')), "not given the model's tokenizer"),
    ],
)
def test_a_sequence_that_goes_wrong_ends_alone_and_its_neighbours_are_the_same(
    poisoned: Path, bad: Request, reason: str
) -> None:
    def good() -> list[Request]:
        chosen = [p for p in prompts(40, seed=5) if 7 not in p][:9]
        return [Request(p, 15, SAMPLED[i % len(SAMPLED)]) for i, p in enumerate(chosen)]

    alone = run_batch(engine_of(poisoned), good())
    requests = good()
    run_batch(engine_of(poisoned), [requests[0], bad, *requests[1:]], chunk_tokens=50)
    assert reason in str(bad.failure)
    assert bad.output == []
    # A greedy or sampled token that was 7 would poison a neighbour too; none is, or these would differ in length.
    assert [(r.output, r.failure) for r in requests] == [(r.output, r.failure) for r in alone]
    assert sum(r.failure is None for r in requests) >= 6


def test_the_next_sequence_in_poisoned_memory_is_clean(poisoned: Path) -> None:
    engine = engine_of(poisoned, slots=1)
    [before] = run_batch(engine, [Request((3, 4, 5), 10)])
    # Released after a chunk that was not its last: its NaN has not been noticed by then.
    chunk = PrefillChunk(0, (7,) * 64, 0, last=False)
    engine.execute(StepPlan(admitted=(Admission(0, SamplingParams(), 99),), prefills=(chunk,)))
    engine.execute(StepPlan(released=(0,)))
    [after] = run_batch(engine, [Request((3, 4, 5), 10)])
    assert (after.output, after.failure) == (before.output, None)


def test_a_step_of_chunks_that_are_not_last_yields_nothing(model_directory: Directory) -> None:
    engine = engine_of(model_directory("grouped"))
    chunk = PrefillChunk(2, (5, 6), 0, last=False)
    result = engine.execute(StepPlan(admitted=(Admission(2, SamplingParams(), 9),), prefills=(chunk,)))
    assert (result.tokens, result.failures) == ({}, {})


def test_a_slot_never_goes_past_its_limit(model_directory: Directory) -> None:
    engine = engine_of(model_directory("grouped"))
    first = PrefillChunk(0, (5, 6), 0, last=True)
    token = engine.execute(StepPlan(admitted=(Admission(0, SamplingParams(), 3),), prefills=(first,))).tokens[0]
    token = engine.execute(StepPlan(decodes=(Decode(0, token, 2),))).tokens[0]
    failures = engine.execute(StepPlan(decodes=(Decode(0, token, 3),))).failures
    assert failures == {0: "tokens up to position 3 in a slot of 3 tokens"}


def test_a_light_step_leaves_half_of_the_threads_alone(
    model_directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, asked = 6, list[int]()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    engine = engine_of(model_directory("grouped"))
    admitted = (Admission(0, SamplingParams(), 9),)
    token = engine.execute(StepPlan(admitted=admitted, prefills=(PrefillChunk(0, (5, 6, 7), 0, True),))).tokens[0]
    assert asked == []
    engine.execute(StepPlan(decodes=(Decode(0, token, 3),)))
    assert asked == [3, 6]


def test_an_empty_plan_does_nothing(model_directory: Directory) -> None:
    result = engine_of(model_directory("grouped")).execute(StepPlan())
    assert (result.tokens, result.failures) == ({}, {})


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("context", [2, 5, 256])
def test_warming_up_leaves_no_trace(model_directory: Directory, slots: int, context: int) -> None:
    directory = model_directory("grouped")
    engine = load_torch_engine(directory, dtype="float32", slots=slots, max_context_tokens=context)
    free = engine.free_blocks
    engine.warm_up()
    assert engine.free_blocks == free
    [warm] = run_batch(engine, [Request((5,), context - 1)])
    [cold] = run_batch(engine_of(directory), [Request((5,), context - 1)])
    assert warm.output == cold.output


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_close_to_fp32(model_directory: Directory, dtype: str) -> None:
    directory = model_directory("grouped")
    exact = run_batch(engine_of(directory), [Request(p, 1) for p in prompts(40, seed=6)])
    halves = run_batch(engine_of(directory, dtype=dtype), [Request(p, 1) for p in prompts(40, seed=6)])
    same = sum(a.output == b.output for a, b in zip(exact, halves, strict=True))
    assert same >= 32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("variant", VARIANTS)
def test_on_cuda_every_request_equals_generate(model_directory: Directory, variant: str) -> None:
    directory = model_directory(variant)
    requests = [Request(p, 20) for p in prompts(8)]
    engine = engine_of(directory, device="cuda")
    engine.warm_up()
    run_batch(engine, requests, step_tokens=90)
    assert_equal_to_generate(requests, Oracle(directory))


def test_kv_use_is_the_tokens_of_all_sequences_of_all_that_fit(model_directory: Directory) -> None:
    engine = engine_of(model_directory("grouped"))
    assert engine.kv_use() == KvUse(0, 4 * 256)
    admitted = tuple(Admission(slot, SamplingParams(), 200) for slot in (0, 1))
    result = engine.execute(
        StepPlan(admitted=admitted, prefills=tuple(PrefillChunk(n, (5,) * 70, 0, True) for n in (0, 1)))
    )
    engine.execute(StepPlan(decodes=(Decode(0, result.tokens[0], 70),)))
    assert engine.kv_use() == KvUse(141, 4 * 256)
    engine.execute(StepPlan(released=(0, 1)))
    assert engine.kv_use() == KvUse(0, 4 * 256)


def test_measuring_the_throughput_changes_no_token_that_is_made_afterwards(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    engine = engine_of(directory)
    engine.warm_up()
    free = engine.free_blocks
    points = measure_throughput(engine, budget_seconds=60.0, clock=monotonic).points
    assert [(point.batch_size, point.context_tokens) for point in points] == [
        (size, context) for size in (1, 2, 4) for context in (32, 128)
    ]
    assert engine.free_blocks == free
    requests = [Request(p, 12) for p in prompts(6, seed=4)]
    run_batch(engine, requests)
    assert_equal_to_generate(requests, Oracle(directory))
