from __future__ import annotations

import pytest

from gpu_consumers.comparison.speed import Stopwatch, measure_speed
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.errors import EngineConfigurationError
from gpu_consumers.generation import Model
from gpu_consumers.plan import StepPlan, StepResult
from models.tokenizer import ByteTokenizer

MODEL = Model(ByteTokenizer(), frozenset())


class Paced(EchoEngine):
    """Takes 10 ms a step, and 1 ms more for each token of a prompt."""

    def __init__(self, slots: int, max_context_tokens: int = 1024, max_step_tokens: int = 8192) -> None:
        super().__init__(slots=slots, max_context_tokens=max_context_tokens, max_step_tokens=max_step_tokens)
        self.now = 0.0
        self.batches = set[int]()

    def execute(self, plan: StepPlan) -> StepResult:
        self.now += 0.010 + 0.001 * sum(len(chunk.token_ids) for chunk in plan.prefills)
        self.batches.add(len(plan.decodes))
        return super().execute(plan)

    def watch(self, seconds: float = 3.0) -> Stopwatch:
        return Stopwatch(lambda: self.now, lambda seconds: None, seconds=seconds)


def test_decodes_are_counted_apart_from_prompts() -> None:
    engine = Paced(slots=16)
    speed = measure_speed(engine, MODEL, engine.watch())
    assert speed.decode_one == pytest.approx(100)
    assert speed.many == 16
    assert speed.decode_many == pytest.approx(1600)
    assert 900 < speed.prefill < 1000
    assert engine.kv_use().used_tokens == 0


def test_fewer_slots_are_a_smaller_batch() -> None:
    engine = Paced(slots=3)
    speed = measure_speed(engine, MODEL, engine.watch())
    assert speed.many == 3
    assert speed.decode_many == pytest.approx(300)
    assert max(engine.batches) == 3


def test_the_smallest_context_has_room_for_the_load() -> None:
    engine = Paced(slots=4, max_context_tokens=64)
    assert measure_speed(engine, MODEL, engine.watch()).decode_one == pytest.approx(100)
    with pytest.raises(EngineConfigurationError, match="a context of 63 tokens is too short"):
        measure_speed(Paced(slots=4, max_context_tokens=63), MODEL, engine.watch())


def test_a_window_that_ends_among_the_prompts_is_followed_by_another() -> None:
    engine = Paced(slots=16, max_step_tokens=64)
    assert measure_speed(engine, MODEL, engine.watch(0.02)).decode_many == pytest.approx(1600)


def test_steps_without_room_for_prompts_beside_a_full_batch_end_with_an_error() -> None:
    engine = Paced(slots=16, max_step_tokens=16)
    with pytest.raises(EngineConfigurationError, match="none of the kind to be measured"):
        measure_speed(engine, MODEL, engine.watch(0.02))
