from __future__ import annotations

import pytest

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.slots import SlotTable
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan

INFO = EngineInfo(
    "test", slots=4, max_context_tokens=32, max_step_tokens=8, vocabulary_size=10, eos_token_ids=frozenset()
)


def admit(slot: int, *, max_tokens: int = 16, sampling: SamplingParams | None = None, index: int = 0) -> Admission:
    return Admission(slot, sampling or SamplingParams(), max_tokens, index)


def chunk(slot: int, tokens: int = 3, start: int = 0, last: bool = True) -> PrefillChunk:
    return PrefillChunk(slot, (1,) * tokens, start, last)


def test_a_plan_that_keeps_the_rules_is_all_runnable() -> None:
    table = SlotTable(INFO)
    first = table.begin(StepPlan(admitted=(admit(0), admit(1)), prefills=(chunk(0), chunk(1, 2, last=False))))
    second = table.begin(StepPlan(prefills=(chunk(1, 2, start=2),), decodes=(Decode(0, 9, 3),)))
    assert (first.failures, second.failures) == ({}, {})
    assert [c.slot for c in first.prefills + second.prefills] == [0, 1, 1]
    assert table[0].computed_tokens == table[1].computed_tokens == 4


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (chunk(0, tokens=0), "an empty prefill chunk"),
        (PrefillChunk(0, (1, 10), 0, True), "token id 10 is outside the vocabulary of 10"),
        (PrefillChunk(0, (-1,), 0, True), "token id -1 is outside the vocabulary of 10"),
        (chunk(0, start=2), "the slot's next position is 0"),
        (chunk(0, tokens=17), "up to position 16 in a slot of 16 tokens"),
        (Decode(0, 1, 5), "the slot's next position is 0"),
        (Decode(0, 11, 0), "token id 11 is outside"),
        (chunk(3), "slot 3 holds no sequence"),
    ],
)
def test_a_part_that_cannot_be_run_fails_its_own_slot(part: PrefillChunk | Decode, reason: str) -> None:
    table = SlotTable(INFO)
    prefills = (chunk(1),) + ((part,) if isinstance(part, PrefillChunk) else ())
    decodes = (part,) if isinstance(part, Decode) else ()
    work = table.begin(StepPlan(admitted=(admit(0), admit(1)), prefills=prefills, decodes=decodes))
    assert list(work.failures) == [part.slot]
    assert reason in work.failures[part.slot]
    assert ([c.slot for c in work.prefills], work.decodes) == ([1], ())


@pytest.mark.parametrize(
    ("admission", "reason"),
    [
        (admit(4), "slot 4 is not one of this engine's 4"),
        (admit(0, max_tokens=33), "max_tokens is 33"),
        (admit(0, max_tokens=0), "max_tokens is 0"),
        (admit(0, index=-1), "first_output_index is -1"),
        (admit(0, sampling=SamplingParams(temperature=-1.0)), "temperature is -1.0"),
        (admit(0, sampling=SamplingParams(temperature=float("nan"))), "temperature is nan"),
        (admit(0, sampling=SamplingParams(top_p=0.0)), "top_p is 0.0"),
        (admit(0, sampling=SamplingParams(top_k=-2)), "top_k is -2"),
        (admit(0, sampling=SamplingParams(min_p=1.5)), "min_p is 1.5"),
        (admit(0, sampling=SamplingParams(min_p=float("nan"))), "min_p is nan"),
        (admit(0, sampling=SamplingParams(repetition_penalty=0.0)), "repetition_penalty is 0.0"),
        (admit(0, sampling=SamplingParams(repetition_penalty=float("inf"))), "repetition_penalty is inf"),
        (admit(0, sampling=SamplingParams(presence_penalty=float("nan"))), "presence_penalty is nan"),
        (admit(0, sampling=SamplingParams(frequency_penalty=float("-inf"))), "frequency_penalty is -inf"),
        (admit(0, sampling=SamplingParams(top_logprobs=21)), "top_logprobs is 21"),
        (admit(0, sampling=SamplingParams(top_logprobs=-1)), "top_logprobs is -1"),
        (admit(0, sampling=SamplingParams(logit_bias=((3, 1.0), (10, 1.0)))), "token 10, which is outside"),
        (admit(0, sampling=SamplingParams(logit_bias=((-1, 1.0),))), "token -1, which is outside"),
        (admit(0, sampling=SamplingParams(logit_bias=((3, float("nan")),))), "logit_bias of token 3 is nan"),
    ],
)
def test_an_admission_that_cannot_be_served_fails_at_once(admission: Admission, reason: str) -> None:
    work = SlotTable(INFO).begin(StepPlan(admitted=(admission,), prefills=(chunk(admission.slot),)))
    assert reason in work.failures[admission.slot]
    assert work.prefills == ()


def test_a_failed_slot_stays_failed_with_its_reason_until_it_is_released() -> None:
    table = SlotTable(INFO)
    reason = table.begin(StepPlan(admitted=(admit(0),), prefills=(chunk(0, tokens=0),))).failures[0]
    assert table.begin(StepPlan(prefills=(chunk(0),))).failures == {0: reason}
    again = table.begin(StepPlan(released=(0,), admitted=(admit(0),), prefills=(chunk(0),)))
    assert (again.failures, len(again.prefills)) == ({}, 1)


def test_a_slot_that_appears_twice_in_a_step_fails_and_is_not_run() -> None:
    work = SlotTable(INFO).begin(StepPlan(admitted=(admit(0),), prefills=(chunk(0, 1), chunk(0, 1, start=1))))
    assert work.prefills == ()
    assert "twice" in work.failures[0]


def test_admission_to_a_taken_slot_fails_the_slot() -> None:
    table = SlotTable(INFO)
    table.begin(StepPlan(admitted=(admit(0),), prefills=(chunk(0),)))
    work = table.begin(StepPlan(admitted=(admit(0),), decodes=(Decode(0, 1, 3),)))
    assert "is taken" in work.failures[0]
    assert work.decodes == ()


def test_output_indices_count_on_from_the_first_one() -> None:
    table = SlotTable(INFO)
    table.begin(StepPlan(admitted=(admit(0, index=5), admit(1))))
    assert [table.next_output_index(0) for _ in range(3)] == [5, 6, 7]
    assert table.next_output_index(1) == 0


def test_computed_tokens_are_those_of_all_sequences_that_can_go_on() -> None:
    table = SlotTable(INFO)
    table.begin(StepPlan(admitted=(admit(0), admit(1)), prefills=(chunk(0), chunk(1, 2, last=False))))
    assert table.computed_tokens == 5
    table.begin(StepPlan(decodes=(Decode(0, 9, 3), Decode(1, 11, 2))))
    assert table.computed_tokens == 4, "slot 1 has failed"
    table.begin(StepPlan(released=(0, 1)))
    assert table.computed_tokens == 0
