from __future__ import annotations

from gpu_consumers.plan import Decode, PrefillChunk, StepPlan
from gpu_consumers.profiling.costs import ModelCosts, StepNeeds, needs_of

COSTS = ModelCosts(body_weights=100, head_weights=10, weight_bytes=2, kv_bytes_per_token=3, attention_flops=7)


def test_weights_are_read_once_however_many_share_them_and_keys_by_each() -> None:
    needs = needs_of(StepPlan(decodes=(Decode(0, 1, 9), Decode(1, 1, 4))), COSTS)
    assert needs == StepNeeds(bytes=220 + 15 * 3, kv_bytes=45, flops=2 * 2 * 110 + 15 * 7)


def test_a_chunk_attends_to_what_is_before_it_and_to_itself() -> None:
    needs = needs_of(StepPlan(prefills=(PrefillChunk(0, (1, 2, 3), 4, True),)), COSTS)
    pairs = 3 * 4 + 1 + 2 + 3
    assert needs == StepNeeds(bytes=220 + 7 * 3, kv_bytes=21, flops=2 * (3 * 100 + 10) + pairs * 7)


def test_a_chunk_that_yields_no_token_needs_no_head() -> None:
    needs = needs_of(StepPlan(prefills=(PrefillChunk(0, (1, 2), 0, False),)), COSTS)
    assert needs == StepNeeds(bytes=200 + 6, kv_bytes=6, flops=2 * 2 * 100 + 3 * 7)


def test_a_plan_that_runs_nothing_needs_nothing() -> None:
    assert needs_of(StepPlan(released=(1,)), COSTS) == StepNeeds()


def test_the_weights_of_a_step_are_those_of_body_and_head() -> None:
    assert COSTS.weights_bytes == 220
