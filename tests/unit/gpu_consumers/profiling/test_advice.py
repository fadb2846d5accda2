from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_consumers.profiling.advice import Finding, Setup, advice, reasons
from gpu_consumers.profiling.evidence import Operator
from gpu_consumers.profiling.step import StepMeasured
from tests.unit.gpu_consumers.profiling.numbers import COSTS, finding, step

GPU = Setup("torch", slots=16, dtype="bfloat16", on_cpu=False, threads=1)


def told(found: Finding) -> list[str]:
    return [item.do for item in advice(found)]


def test_reasons_name_shares_floors_and_slots() -> None:
    found = finding(*[step(forward=20, memory=18, compute=2, sample=1)] * 20)
    shares, floor, slots = reasons(found)
    assert shares == "Time by what would shorten it: memory 77%, overhead 10%, compute 9%, sampling 5%."
    assert "90% is explained" in floor
    assert "moves 1.8 GB (18.0 ms at 100 GB/s) and takes 2 GFLOP (2.0 ms at 1 TFLOP/s)" in floor
    assert slots == "16.0 of 16 slots were in use, and 0.0 requests waited behind them."


def test_without_a_reference_nothing_is_said_of_floors() -> None:
    assert not any("bare machine" in reason for reason in reasons(finding(step(forward=20), known=False)))


def test_a_window_of_few_steps_says_so() -> None:
    assert reasons(finding(*[step(forward=20)] * 19))[-1].startswith("No more than 19 steps fell into 0.4 s")


def test_slots_that_are_free_while_others_wait_are_no_room() -> None:
    """So it is while the first prompts are prefilled."""
    waiting = replace(step(forward=20, memory=2, slots=5), waiting=9)
    assert told(finding(waiting, setup=GPU)) == []


def test_a_memory_bound_batch_with_room_is_told_to_be_filled() -> None:
    items = advice(finding(step(forward=20, memory=18, slots=3)))
    assert items[0].do == "send it more at once, or run fewer workers"
    assert "1 sequence or 16, and 3.0 were in it" in items[0].why


def test_a_full_memory_bound_batch_is_told_to_grow_by_what_it_costs() -> None:
    [grow, int8] = advice(finding(step(forward=20, memory=18, kv_share=0.25)))
    assert grow.do == "HEADRACE_SLOTS=32"
    assert "75% of what a step reads are weights" in grow.why
    assert "1.25 times the time" in grow.why
    assert int8.why == "reading the weights takes 2.0 ms of every step now, and 1.0 ms in int8"


def test_where_keys_and_values_are_most_of_it_more_slots_are_no_help() -> None:
    does = told(finding(step(forward=20, memory=18, kv_share=0.7)))
    assert "more workers, or shorter contexts" in does
    assert not any(do.startswith("HEADRACE_SLOTS") for do in does)


def test_int8_is_named_once_and_not_to_those_who_have_it() -> None:
    memory = step(forward=20, memory=18)
    assert "int8 weights" in told(finding(memory))
    assert "int8 weights" not in told(finding(memory, setup=replace(GPU, quantized=True)))
    in_float32 = replace(finding(memory), costs=replace(COSTS, weight_bytes=4))
    assert "HEADRACE_DTYPE=bfloat16, or int8 weights" in told(in_float32)


def test_a_device_is_named_where_bandwidth_is_what_is_missing() -> None:
    assert told(finding(step(forward=20, memory=18), setup=GPU))[-1] == "a device with more memory bandwidth"


def test_compute_bound_prompts_are_told_of_prefixes_and_chunks() -> None:
    does = told(finding(step(forward=20, compute=18, prompt_tokens=500)))
    assert does == ["more workers", "HEADRACE_PREFIX_CACHE_MIB", "a smaller HEADRACE_MAX_STEP_TOKENS"]


def test_compute_bound_float32_is_told_of_bfloat16() -> None:
    setup = replace(GPU, dtype="float32")
    assert told(finding(step(forward=20, compute=18), setup=setup)) == ["more workers", "HEADRACE_DTYPE=bfloat16"]


def test_overhead_on_a_busy_machine_is_told_of_the_others() -> None:
    busy = Setup("torch", slots=16, dtype="bfloat16", on_cpu=True, threads=2, cores=2, busy_before=1.7)
    items = advice(finding(step(forward=20, memory=2), setup=busy))
    assert [item.do for item in items] == ["a machine of its own", "HEADRACE_SLOTS=32", "HEADRACE_THREADS"]
    assert "load average was 1.7 on 2 cores" in items[0].why
    assert "HEADRACE_THREADS" not in told(finding(step(forward=20, memory=2), setup=replace(busy, engine="vllm")))


def test_overhead_of_a_batch_with_room_is_told_to_be_filled() -> None:
    assert told(finding(step(forward=20, memory=2, slots=2), setup=GPU)) == ["send it more at once"]


@pytest.mark.parametrize(
    ("operators", "do", "why"),
    [
        ((Operator("aten::mm", 1.0, 0.7, 9), Operator("aten::copy_", 0.2, 0.2, 9)), "more tokens in a step", "70%"),
        ((Operator("aten::copy_", 1.0, 0.7, 9), Operator("aten::mm", 0.2, 0.2, 9)), "fewer small operations", "copy_"),
    ],
)
def test_operators_tell_overhead_of_matrix_products_from_that_of_small_operations(
    operators: tuple[Operator, ...], do: str, why: str
) -> None:
    last = advice(finding(step(forward=20, memory=2), setup=GPU, operators=operators))[-1]
    assert last.do == do
    assert why in last.why


@pytest.mark.parametrize(
    ("measured", "word"),
    [
        (step(schedule=30, forward=5), "the scheduler"),
        (step(build=30, forward=5), "tensors"),
        (step(write=30, forward=5), "text and events"),
    ],
)
def test_a_scheduler_bound_worker_is_told_which_part_it_is(measured: StepMeasured, word: str) -> None:
    items = advice(finding(measured))
    assert items[0].do == "more workers on the device, each with fewer slots"
    assert word in items[0].why
    assert ("a larger HEADRACE_MAX_STEP_TOKENS" in [item.do for item in items]) == (word == "the scheduler")


def test_sampling_and_input_have_advice_of_their_own() -> None:
    assert "temperature 0" in told(finding(step(sample=30, forward=5)))[0]
    assert told(finding(step(wait=30, forward=5)))[:2] == [
        "send it more, or run fewer workers",
        "HEADRACE_WORK_PARTITIONS",
    ]


def test_an_engine_of_which_nothing_is_known_is_sent_to_its_own_profile() -> None:
    echo = replace(GPU, engine="echo")
    assert told(finding(step(forward=5), known=False, setup=echo)) == ["HEADRACE_ECHO_TOKENS_PER_SECOND"]
    assert told(finding(step(forward=5), known=False)) == ["the engine's own profile"]


def test_between_two_causes_both_are_advised_and_nothing_twice() -> None:
    does = told(finding(step(forward=20, memory=19, compute=18, prompt_tokens=500)))
    assert does[0] == "HEADRACE_SLOTS=32"
    assert "HEADRACE_PREFIX_CACHE_MIB" in does
    assert len(does) == len(set(does))
