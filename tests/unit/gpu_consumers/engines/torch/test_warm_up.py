from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.slots import SlotTable
from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.engines.torch.warm_up import warm_up_plans
from gpu_consumers.plan import SamplingParams, StepPlan, StepResult

DRAWS = (SamplingParams(), SamplingParams(1.0), SamplingParams(json_schema="{}"))


@pytest.mark.parametrize("blocks", [0, 3, 64])
@pytest.mark.parametrize("context", [1, 2, 3, 4, 256])
@pytest.mark.parametrize("slots", [1, 2, 3, 8, 13])
def test_every_plan_can_be_run_and_the_slots_are_free_in_the_end(slots: int, context: int, blocks: int) -> None:
    info = EngineInfo("test", slots, context, 64, 10, frozenset(), kv_blocks=blocks)
    table, held = SlotTable(info), set[int]()
    for plan in warm_up_plans(info, DRAWS):
        assert table.begin(plan).failures == {}
        held = held - set(plan.released) | {admission.slot for admission in plan.admitted}
        assert len(held) <= (blocks or slots)
    assert not held


@pytest.mark.parametrize(
    ("slots", "sizes"), [(1, [1]), (2, [1, 2]), (8, [1, 2, 4, 8]), (13, [1, 2, 4, 8, 13])], ids=str
)
def test_steps_of_decodes_come_in_all_sizes(slots: int, sizes: list[int]) -> None:
    info = EngineInfo("test", slots, 256, 64, 10, frozenset())
    plans = list(warm_up_plans(info, DRAWS))
    assert [len(plan.decodes) for plan in plans if plan.decodes and not plan.prefills] == sizes
    assert any(plan.decodes and plan.prefills for plan in plans) == (slots > 1)


def test_every_draw_is_made_and_only_free_text_goes_on() -> None:
    plans = list(warm_up_plans(EngineInfo("test", 2, 256, 64, 10, frozenset()), DRAWS))
    admitted = [admission for plan in plans for admission in plan.admitted]
    assert [admission.sampling for admission in admitted if admission.max_tokens == 1] == list(DRAWS)
    assert [admission.sampling for admission in admitted if admission.max_tokens > 1] == list(DRAWS[:2])


@pytest.mark.parametrize("slots", [1, 5])
def test_a_warm_engine_has_run_all_of_it(
    model_directory: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    results: list[StepResult] = []
    execute = TorchEngine.execute

    def noted(engine: TorchEngine, plan: StepPlan) -> StepResult:
        results.append(execute(engine, plan))
        return results[-1]

    monkeypatch.setattr(TorchEngine, "execute", noted)
    load_torch_engine(model_directory("grouped"), dtype="float32", slots=slots, max_context_tokens=256).warm_up()
    assert all(not (result.failures or result.deferred) for result in results)
    assert max(len(result.tokens) for result in results) == slots
