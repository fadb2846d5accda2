from __future__ import annotations

from pathlib import Path

import pytest

from gpu_consumers.comparison.continuations import OUTPUT_TOKENS, common_prefix, continued, prompts
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.plan import StepPlan, StepResult
from tests.oracle import Oracle
from tests.tiny_model import make_tiny_model


def test_prompts_are_pieces_of_the_text_from_its_beginning_to_its_end() -> None:
    found = prompts(range(1000), 4096)
    assert len(found) == 8
    assert found[0] == tuple(range(48))
    assert found[-1][-1] == 999


def test_prompts_leave_room_for_what_follows_and_a_short_text_has_fewer() -> None:
    assert {len(prompt) for prompt in prompts(range(1000), OUTPUT_TOKENS + 10)} == {10}
    assert prompts(range(60), 4096) == (tuple(range(48)),)


def test_continuations_are_those_of_generate_whoever_waits_for_a_slot(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path)
    engine = load_torch_engine(directory, dtype="float32", slots=2, max_context_tokens=128)
    given = [tuple(range(3 + i, 20 + i)) for i in range(3)]
    oracle = Oracle(directory)
    for prompt, output in zip(given, continued(engine, given), strict=True):
        expected = oracle.answer(prompt, OUTPUT_TOKENS)
        assert len(output) == OUTPUT_TOKENS
        assert list(output[: len(expected)]) == expected
    assert engine.kv_use().used_tokens == 0


class Failing(EchoEngine):
    def execute(self, plan: StepPlan) -> StepResult:
        return StepResult(failures={chunk.slot: "the device is on fire" for chunk in plan.prefills})


def test_an_engine_that_fails_a_continuation_is_a_clear_error() -> None:
    with pytest.raises(EngineFailedError, match="the device is on fire"):
        continued(Failing(slots=2), [(1, 2, 3)])


def test_a_common_prefix_ends_at_the_first_difference() -> None:
    assert common_prefix((1, 2, 3), (1, 2, 4)) == 2
    assert common_prefix((1, 2), (1, 2)) == 2
    assert common_prefix((5,), (1,)) == 0
