"""What every engine promises behind the port, whatever computes its tokens.

vLLM itself is among them where it is installed; it takes a minute or more to open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpu_consumers.engine import Engine
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.engines.vllm import open_vllm_engine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan, StepResult
from tests.batching import Request, run_batch
from tests.fake_vllm import FakeVllm
from tests.tiny_model import make_tiny_model

pytestmark = pytest.mark.usefixtures("frozen_heap")

SLOTS, CONTEXT = 4, 64
PROMPTS = ((5, 9, 11), (17,), (3, 4, 5, 6, 8, 10, 12), (21, 20))


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Heads of 32 numbers: vLLM has no smaller ones.
    return make_tiny_model(tmp_path_factory.mktemp("port"), hidden_size=128, max_context_tokens=2 * CONTEXT)


def _echo(directory: Path) -> Engine:
    return EchoEngine(slots=SLOTS, max_context_tokens=CONTEXT)


def _torch(directory: Path) -> Engine:
    return load_torch_engine(directory, dtype="float32", slots=SLOTS, max_context_tokens=CONTEXT)


def _vllm(directory: Path) -> Engine:
    return open_vllm_engine(directory, dtype="float32", slots=SLOTS, max_context_tokens=CONTEXT, api=FakeVllm().api)


def _vllm_in_bursts(directory: Path) -> Engine:
    fake = FakeVllm(burst=3)
    return open_vllm_engine(directory, dtype="float32", slots=SLOTS, max_context_tokens=CONTEXT, api=fake.api)


@pytest.fixture(scope="session")
def vllm_itself(directory: Path) -> Iterator[Engine]:
    """One for all tests."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed here")
    opened = open_vllm_engine(directory, dtype="float32", slots=SLOTS, max_context_tokens=CONTEXT)
    opened.warm_up()
    yield opened
    opened.close()


@pytest.fixture(
    params=[_echo, _torch, _vllm, _vllm_in_bursts, None],
    ids=lambda make: "vllm_itself" if make is None else make.__name__.strip("_"),
)
def engine(request: pytest.FixtureRequest, directory: Path) -> Iterator[Engine]:
    make: Callable[[Path], Engine] | None = request.param
    if make is None:
        opened = request.getfixturevalue("vllm_itself")
        yield opened
        opened.execute(StepPlan(released=tuple(range(SLOTS))))
        return
    opened = make(directory)
    opened.warm_up()
    yield opened
    opened.close()


def admit(slot: int, *, max_tokens: int = CONTEXT, sampling: SamplingParams | None = None) -> Admission:
    return Admission(slot, sampling or SamplingParams(), max_tokens)


def begin(engine: Engine, *slots: int) -> StepResult:
    """Sequences in these slots, with their prompts of PROMPTS prefilled."""
    prefills = tuple(PrefillChunk(slot, PROMPTS[slot], 0, True) for slot in slots)
    return engine.execute(StepPlan(admitted=tuple(map(admit, slots)), prefills=prefills))


def outputs(engine: Engine, count: int = 8, chunk_tokens: int | None = None) -> list[list[int]]:
    requests = [Request(prompt, count) for prompt in PROMPTS]
    return [request.output for request in run_batch(engine, requests, chunk_tokens=chunk_tokens)]


def test_each_slot_that_is_due_gets_one_token_of_the_vocabulary_and_nobody_else_any(engine: Engine) -> None:
    chunks = (PrefillChunk(0, PROMPTS[0], 0, True), PrefillChunk(2, PROMPTS[2][:3], 0, False))
    first = engine.execute(StepPlan(admitted=(admit(0), admit(2)), prefills=chunks))
    assert list(first.tokens) == [0], "the other prompt is not whole yet"
    decode = Decode(0, first.tokens[0], len(PROMPTS[0]))
    second = engine.execute(StepPlan(prefills=(PrefillChunk(2, PROMPTS[2][3:], 3, True),), decodes=(decode,)))
    assert set(second.tokens) == {0, 2}
    assert (first.failures, second.failures) == ({}, {})
    assert all(0 <= token < engine.info.vocabulary_size for token in (*first.tokens.values(), *second.tokens.values()))


def test_an_empty_plan_yields_nothing(engine: Engine) -> None:
    begin(engine, 0)
    assert engine.execute(StepPlan()) == StepResult()


def test_chunks_of_a_prompt_and_neighbours_change_no_token(engine: Engine) -> None:
    together = outputs(engine)
    assert outputs(engine, chunk_tokens=2) == together
    alone = [run_batch(engine, [Request(prompt, 8)])[0].output for prompt in PROMPTS]
    assert alone == together


def test_more_sequences_than_slots_all_get_all_their_tokens(engine: Engine) -> None:
    requests = run_batch(engine, [Request(PROMPTS[number % 4], 1 + number % 5) for number in range(11)])
    assert [len(request.output) for request in requests] == [1 + number % 5 for number in range(11)]


def test_a_slot_is_as_good_as_new_for_the_next_sequence(engine: Engine) -> None:
    fresh = begin(engine, 1).tokens[1]
    engine.execute(StepPlan(decodes=(Decode(1, fresh, 1),)))
    chunk = PrefillChunk(1, PROMPTS[1], 0, True)
    again = engine.execute(StepPlan(released=(1,), admitted=(admit(1),), prefills=(chunk,)))
    assert again == StepResult({1: fresh})


def test_a_sequence_that_lost_its_slot_goes_on_where_it_was(engine: Engine) -> None:
    [whole] = run_batch(engine, [Request(PROMPTS[2], 9)])
    for emitted in (1, 4):
        [rest] = run_batch(engine, [Request(PROMPTS[2], 9 - emitted, emitted=tuple(whole.output[:emitted]))])
        assert rest.output == whole.output[emitted:]


@pytest.mark.parametrize(
    "bad",
    [
        PrefillChunk(3, (10**9,), 0, True),
        PrefillChunk(3, (-1,), 0, True),
        PrefillChunk(3, (), 0, True),
        PrefillChunk(3, (1,), 5, True),
        PrefillChunk(3, (1,) * (CONTEXT + 1), 0, True),
        Decode(3, 1, 7),
    ],
    ids=["token outside", "negative token", "empty", "elsewhere", "too long", "decode elsewhere"],
)
def test_a_part_that_cannot_be_run_fails_alone(engine: Engine, bad: PrefillChunk | Decode) -> None:
    expected = begin(engine, 0, 1)
    engine.execute(StepPlan(released=(0, 1)))
    prefills = tuple(PrefillChunk(slot, PROMPTS[slot], 0, True) for slot in (0, 1))
    plan = StepPlan(
        admitted=tuple(map(admit, (0, 1, 3))),
        prefills=(*prefills, bad) if isinstance(bad, PrefillChunk) else prefills,
        decodes=(bad,) if isinstance(bad, Decode) else (),
    )
    result = engine.execute(plan)
    assert result.tokens == expected.tokens
    assert list(result.failures) == [3]
    assert result.failures[3]
    assert begin(engine, 2).failures == {}, "the engine goes on"


@pytest.mark.parametrize(
    "admission",
    [admit(2, max_tokens=CONTEXT + 1), admit(2, sampling=SamplingParams(top_p=0.0)), admit(0)],
    ids=["too long", "parameters out of range", "taken"],
)
def test_an_admission_that_cannot_be_served_fails_its_slot(engine: Engine, admission: Admission) -> None:
    begin(engine, 0)
    result = engine.execute(StepPlan(admitted=(admission,)))
    assert list(result.failures) == [admission.slot]
    result = begin(engine, 1)
    assert (list(result.tokens), result.failures) == ([1], {})


def test_a_failed_slot_is_free_again_once_it_is_released(engine: Engine) -> None:
    expected = begin(engine, 1)
    failed = engine.execute(StepPlan(decodes=(Decode(1, 1, 40),)))
    assert list(failed.failures) == [1]
    chunk = PrefillChunk(1, PROMPTS[1], 0, True)
    assert engine.execute(StepPlan(released=(1,), admitted=(admit(1),), prefills=(chunk,))) == expected


def test_tokens_that_are_cached_never_are_the_whole_prompt(engine: Engine) -> None:
    outputs(engine)
    assert all(engine.cached_tokens("", prompt) < len(prompt) for prompt in PROMPTS)


def test_what_is_held_never_is_more_than_there_is_room_for(engine: Engine) -> None:
    begin(engine, 0, 1, 2, 3)
    use = engine.kv_use()
    assert 0 <= use.used_tokens <= use.capacity_tokens
