"""The same promises with a real model: what goes over the log is what `generate()` makes, across two workers too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from gpu_consumers.engines.torch import TorchEngine
from gpu_consumers.plan import StepPlan, StepResult
from schemas.events import GenerationFinished
from tests.brokers import Broker
from tests.oracle import Oracle
from tests.tiny_model import make_tiny_model
from tests.worker_stage import Stage, comes_true, running_worker

PROMPTS = [
    "The quick brown fox",
    "Größe, façade,",
    "🌊 🌊🌊",
    "if (x == 0) { return",
    "a",
    "The river runs through the valley " * 4,
    "你好",
    "one two three",
]


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def stage(broker: Broker, model_directory: Path) -> Iterator[Stage]:
    stage = Stage(broker)
    stage.register_model(
        engine="torch", location=str(model_directory), tokenizer=str(model_directory), context_tokens=256
    )
    yield stage
    stage.close()


async def test_answers_begun_by_one_worker_and_finished_by_another_are_what_generate_makes(
    stage: Stage, model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_directory)
    tenants = [stage.add_tenant(), stage.add_tenant()]
    orders = [
        stage.order(tenants[n % 2], tuple(tokenizer.encode(prompt)), max_output_tokens=100 + 5 * n)
        for n, prompt in enumerate(PROMPTS)
    ]
    stage.send(*orders)
    small = {"dtype": "float32", "max_step_tokens": 16}
    whole = TorchEngine.execute

    def slowly(engine: TorchEngine, plan: StepPlan) -> StepResult:
        threading.Event().wait(0.02)
        return whole(engine, plan)

    with monkeypatch.context() as patch:
        patch.setattr(TorchEngine, "execute", slowly)
        async with running_worker(stage.settings("first", slots=3, **small)):
            assert await comes_true(lambda: sum(len(a.log.token_ids) for a in stage.answers().values()) > 20)
    async with running_worker(stage.settings("second", slots=8, **small)):
        answers = await stage.until_ended(orders)
    oracle = Oracle(model_directory)
    compared = 0
    for order in orders:
        answer = answers[order.request_id]
        made = answer.log.token_ids
        expected = oracle.answer(order.prompt_token_ids, order.max_output_tokens)  # up to the first near tie
        assert made[: len(expected)] == expected[: len(made)]
        compared += min(len(made), len(expected))
        assert answer.log.text == tokenizer.decode(made, skip_special_tokens=True)
        (terminal,) = answer.terminals
        assert isinstance(terminal, GenerationFinished)
        assert terminal.output_tokens == len(made)
        if terminal.finish_reason == "length":
            assert len(made) == order.max_output_tokens
        else:
            assert made[-1] == tokenizer.eos_token_id
    assert compared > 400
    assert any(answer.attempts == [1, 2] for answer in answers.values())
