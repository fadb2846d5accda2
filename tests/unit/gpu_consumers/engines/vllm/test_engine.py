from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_consumers.adapter_host import AdapterHost
from gpu_consumers.engines.vllm import VllmEngine, open_vllm_engine
from gpu_consumers.engines.vllm.adapters import vllm_rank
from gpu_consumers.engines.vllm.api import import_vllm
from gpu_consumers.errors import AdapterUnavailableError, EngineConfigurationError, ModelFilesMissingError
from gpu_consumers.plan import Admission, Decode, Logprobs, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.sequence import Sequence
from tests.batching import Request, run_batch
from tests.fake_vllm import POISON, EngineDeadError, FakeVllm, LoRARequest
from tests.scheduled import run_scheduled
from tests.tiny_model import make_tiny_model

pytestmark = pytest.mark.usefixtures("frozen_heap")

Opener = Callable[..., tuple[VllmEngine, FakeVllm]]


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("vllm"))


@pytest.fixture
def opened(directory: Path) -> Iterator[Opener]:
    """Opens engines with a fake of these changes, and closes them."""
    engines: list[VllmEngine] = []

    def open_with(*, adapter_places: int = 0, **changes: Any) -> tuple[VllmEngine, FakeVllm]:
        fake = FakeVllm(**changes)
        engine = open_vllm_engine(
            directory, slots=3, max_context_tokens=64, adapter_places=adapter_places, api=fake.api
        )
        engines.append(engine)
        return engine, fake

    yield open_with
    for engine in engines:
        engine.close()


def begin(engine: VllmEngine, *admissions: Admission, prompt: tuple[int, ...] = (4, 5)) -> Any:
    prefills = tuple(PrefillChunk(admission.slot, prompt, 0, True) for admission in admissions)
    return engine.execute(StepPlan(admitted=admissions, prefills=prefills))


def test_the_engine_is_what_the_model_and_the_settings_say(opened: Opener) -> None:
    engine, fake = opened()
    assert (engine.info.name, engine.info.slots, engine.info.max_context_tokens) == ("vllm", 3, 64)
    assert engine.info.max_step_tokens == 64 + 3
    assert (engine.info.vocabulary_size, engine.info.eos_token_ids) == (120, frozenset({1, 2, 7}))
    arguments = fake.llm.engine_args
    assert (arguments.max_num_seqs, arguments.max_model_len, arguments.dtype) == (3, 64, "bfloat16")
    assert arguments.enable_lora is False


def test_a_sequence_is_one_request_of_vllm_from_its_last_chunk_on(opened: Opener) -> None:
    engine, fake = opened()
    [request] = run_batch(engine, [Request((4, 5, 6, 8, 9), 6)], chunk_tokens=2)
    [call] = fake.llm.calls
    assert call.prompt["prompt_token_ids"] == [4, 5, 6, 8, 9]
    assert call.sampling_params.max_tokens == 7
    assert len(request.output) == 6


def test_the_end_of_an_answer_is_the_workers_business(opened: Opener) -> None:
    engine, fake = opened()
    begin(engine, Admission(0, SamplingParams(), 20))
    assert fake.llm.calls[0].sampling_params.ignore_eos


def test_a_released_slot_stops_its_request_and_no_other(opened: Opener) -> None:
    engine, _ = opened()
    first = begin(engine, Admission(0, SamplingParams(), 20), Admission(1, SamplingParams(), 50))
    engine.execute(StepPlan(released=(0,)))
    second = engine.execute(StepPlan(decodes=(Decode(1, first.tokens[1], 2),)))
    assert (list(second.tokens), second.failures) == ([1], {})


def test_nothing_runs_in_vllm_for_a_slot_that_was_released_or_an_engine_that_was_closed(opened: Opener) -> None:
    engine, fake = opened(pace_seconds=0.01)
    begin(engine, Admission(0, SamplingParams(), 60), Admission(1, SamplingParams(), 60))
    engine.execute(StepPlan(released=(0,)))
    engine.close()
    assert sorted(fake.llm.aborted) == [call.request_id for call in fake.llm.calls]
    assert fake.llm.running == set()
    assert fake.llm.is_shut_down
    engine.close()


def test_what_vllm_refuses_fails_alone_with_its_words(opened: Opener) -> None:
    engine, _ = opened()
    guided = SamplingParams(json_schema='{"$ref": "elsewhere"}')
    strong = SamplingParams(presence_penalty=3.0)
    result = begin(engine, Admission(0, guided, 20), Admission(1, strong, 20), Admission(2, SamplingParams(), 20))
    assert list(result.tokens) == [2]
    assert "VLLMValidationError: The provided JSON schema" in result.failures[0]
    assert "presence_penalty must be in [-2, 2]" in result.failures[1]


def test_a_request_that_fails_in_the_middle_gives_what_it_had_and_then_its_reason(opened: Opener) -> None:
    engine, _ = opened()
    poisoned, fine = run_batch(engine, [Request((4, POISON), 5), Request((4, 5), 5)])
    assert len(poisoned.output) == 1
    assert "RuntimeError: the sampler lost" in str(poisoned.failure)
    assert (len(fine.output), fine.failure) == (5, None)


def test_an_engine_that_dies_takes_every_step_with_it(opened: Opener) -> None:
    engine, _ = opened(tokens_to_live=3)
    with pytest.raises(EngineDeadError):
        run_batch(engine, [Request((4, 5), 9), Request((4, 6), 9)])
    with pytest.raises(EngineDeadError):
        begin(engine, Admission(2, SamplingParams(), 20))


def test_a_plan_that_decodes_another_token_than_vllm_went_on_from_fails_alone(opened: Opener) -> None:
    engine, _ = opened()
    first = begin(engine, Admission(0, SamplingParams(), 20), Admission(1, SamplingParams(), 20))
    wrong = Decode(0, (first.tokens[0] + 1) % 120, 2)
    result = engine.execute(StepPlan(decodes=(wrong, Decode(1, first.tokens[1], 2))))
    assert "vLLM has gone on from token" in result.failures[0]
    assert list(result.tokens) == [1]


def test_a_chunk_behind_the_first_token_and_a_decode_before_it_fail_alone(opened: Opener) -> None:
    engine, _ = opened()
    begin(engine, Admission(0, SamplingParams(), 20))
    result = engine.execute(
        StepPlan(
            admitted=(Admission(1, SamplingParams(), 20),),
            prefills=(PrefillChunk(0, (6,), 2, True),),
            decodes=(Decode(1, 6, 0),),
        )
    )
    assert "behind the first token" in result.failures[0]
    assert "has made no token" in result.failures[1]


def test_log_probabilities_are_of_the_chosen_token_and_of_the_likeliest(opened: Opener) -> None:
    engine, _ = opened()
    greedy, sampled = SamplingParams(top_logprobs=2), SamplingParams(1.0, seed=3, top_logprobs=0)
    result = begin(engine, Admission(0, greedy, 20), Admission(1, sampled, 20), Admission(2, SamplingParams(), 20))
    token = result.tokens[0]
    assert result.logprobs[0] == Logprobs(-0.5, ((token, -0.5), ((token + 1) % 120, -1.0)))
    assert result.logprobs[1].top == ()
    assert set(result.logprobs) == {0, 1}


def test_a_json_schema_becomes_structured_output_and_can_only_begin_at_the_beginning(opened: Opener) -> None:
    engine, fake = opened()
    guided = SamplingParams(json_schema='{"type": "object"}')
    result = begin(engine, Admission(0, guided, 20), Admission(1, guided, 20, first_output_index=1))
    assert list(result.tokens) == [0]
    assert "goes on" not in result.failures[1]
    assert "JSON schema" in result.failures[1]
    [call] = fake.llm.calls
    assert call.sampling_params.structured_outputs is not None
    assert call.sampling_params.structured_outputs.json == '{"type": "object"}'


def test_guided_sequences_keep_their_slots_under_the_scheduler_and_others_go_on_elsewhere(opened: Opener) -> None:
    engine, _ = opened()
    assert not engine.info.resumes_guided
    guided = SamplingParams(json_schema='{"type": "object"}')
    flood = [
        Sequence(f"guided{n}", "flood", (4, 5), 14, guided) if n % 3 else Sequence(f"free{n}", "flood", (4, 5), 14)
        for n in range(6)
    ]
    light = [Sequence(f"light{n}", "light", (6, 7), 14, priority=1) for n in range(6)]
    answers = run_scheduled(engine, [one for pair in zip(flood, light, strict=True) for one in pair], apart=2)
    assert answers.failures == {}
    assert answers.preemptions
    assert {name: len(tokens) for name, tokens in answers.tokens.items()} == {
        one.request_id: one.max_tokens - 2 for one in flood + light
    }


def adapter(directory: Path) -> str:
    directory.mkdir()
    (directory / "adapter_config.json").write_text("{}")
    return str(directory)


def test_adapters_are_lora_requests_with_a_number_and_a_cache_of_their_own(opened: Opener, tmp_path: Path) -> None:
    engine, fake = opened(adapter_places=2)
    assert isinstance(engine, AdapterHost)
    assert engine.adapter_places == 2
    tone, law = adapter(tmp_path / "tone"), adapter(tmp_path / "law")
    engine.read_adapter("tone@v1", tone)(0)
    engine.read_adapter("law@v2", law)(1)
    result = begin(
        engine,
        Admission(0, SamplingParams(), 20, tenant="acme", adapter="tone@v1"),
        Admission(1, SamplingParams(), 20, tenant="acme", adapter="law@v2"),
        Admission(2, SamplingParams(), 20, tenant="acme", adapter="gone@v1"),
    )
    assert set(result.tokens) == {0, 1}
    assert "gone@v1 is in no place" in result.failures[2]
    loras = [call.lora_request for call in fake.llm.calls]
    assert loras == [LoRARequest("tone@v1", 1, tone), LoRARequest("law@v2", 2, law)]
    assert [call.prompt["cache_salt"] for call in fake.llm.calls] == ["acme/tone@v1", "acme/law@v2"]
    arguments = fake.llm.engine_args
    assert (arguments.enable_lora, arguments.max_loras, arguments.max_lora_rank) == (True, 2, 64)


def test_a_place_holds_the_newest_adapter_and_the_one_before_is_gone(opened: Opener, tmp_path: Path) -> None:
    engine, fake = opened(adapter_places=1)
    engine.read_adapter("tone@v1", adapter(tmp_path / "tone"))(0)
    engine.read_adapter("tone@v2", adapter(tmp_path / "tone2"))(0)
    old = Admission(0, SamplingParams(), 20, adapter="tone@v1")
    new = Admission(1, SamplingParams(), 20, adapter="tone@v2")
    result = begin(engine, old, new)
    assert (list(result.tokens), list(result.failures)) == ([1], [0])
    [call] = fake.llm.calls
    assert call.lora_request is not None
    assert call.lora_request.lora_int_id == 2


def test_a_folder_without_an_adapter_is_refused(opened: Opener, tmp_path: Path) -> None:
    engine, _ = opened(adapter_places=1)
    with pytest.raises(AdapterUnavailableError, match=r"has no adapter_config\.json"):
        engine.read_adapter("tone@v1", str(tmp_path))


@pytest.mark.parametrize(("rank", "room"), [(1, 1), (2, 8), (64, 64), (65, 128), (512, 512), (999, 512)])
def test_vllm_makes_room_for_ranks_of_its_own(rank: int, room: int) -> None:
    assert vllm_rank(rank) == room


def test_a_plan_that_counts_on_cached_tokens_fails_that_slot(opened: Opener) -> None:
    engine, _ = opened()
    assert engine.cached_tokens("acme", (4, 5, 6)) == 0
    result = engine.execute(StepPlan(admitted=(Admission(0, SamplingParams(), 20, cached_token_ids=(4, 5)),)))
    assert "cached tokens that are not there" in result.failures[0]


def test_an_answer_that_outgrows_its_slot_ends_with_vllms_reason(opened: Opener) -> None:
    engine, _ = opened()
    first = begin(engine, Admission(0, SamplingParams(), 64), prompt=(4,) * 63)
    result = engine.execute(StepPlan(decodes=(Decode(0, first.tokens[0], 63),)))
    assert result.failures == {0: "vLLM ended the answer: length"}


def test_memory_is_what_vllm_says_it_has(opened: Opener) -> None:
    engine, _ = opened()
    begin(engine, Admission(0, SamplingParams(), 20), Admission(1, SamplingParams(), 20))
    assert (engine.kv_use().used_tokens, engine.kv_use().capacity_tokens) == (4, 160)


def test_a_model_that_vllm_cannot_open_is_a_clear_error(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFilesMissingError, match=r"no config\.json"):
        open_vllm_engine(tmp_path, api=FakeVllm().api)
    with pytest.raises(EngineConfigurationError, match=r"max_model_len \(9999\) is greater than"):
        open_vllm_engine(directory, max_context_tokens=9999, api=FakeVllm().api)


def test_without_vllm_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineConfigurationError, match=r"pip install 'headrace\[vllm\]'"):
        import_vllm()
