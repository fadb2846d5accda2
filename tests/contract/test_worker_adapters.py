"""Orders that name a LoRA adapter, over the log: the answer is the one that PEFT makes, across two workers too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from schemas.events import GenerationFailed, GenerationFinished, RequestRouted
from tests.brokers import Broker
from tests.lora_adapter import make_adapter
from tests.oracle import Oracle
from tests.slow_engine import slow_steps
from tests.tiny_model import make_tiny_model
from tests.worker_stage import Answer, Stage, comes_true, running_worker

SMALL = {"dtype": "float32", "max_step_tokens": 16, "adapter_places": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def folders(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made = tmp_path_factory.mktemp("adapters")
    return [make_adapter(model, made / str(seed), seed=seed, rank=4 + 8 * seed) for seed in range(3)]


@pytest.fixture
def stage(broker: Broker, model: Path) -> Iterator[Stage]:
    stage = Stage(broker)
    stage.register_model(engine="torch", location=str(model), tokenizer=str(model), context_tokens=256)
    yield stage
    stage.close()


def assert_as_peft(order: RequestRouted, answer: Answer, oracle: Oracle) -> int:
    """How many tokens were compared: up to the first near tie."""
    made = answer.log.token_ids
    expected = oracle.answer(order.prompt_token_ids, order.max_output_tokens)
    assert made[: len(expected)] == expected[: len(made)]
    (terminal,) = answer.terminals
    assert isinstance(terminal, GenerationFinished)
    assert terminal.output_tokens == len(made)
    return min(len(made), len(expected))


async def test_answers_with_adapters_begun_by_one_worker_and_finished_by_another_are_what_peft_makes(
    stage: Stage, model: Path, folders: list[Path]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tenants = [stage.add_tenant(), stage.add_tenant()]
    adapters = {stage.register_adapter(f"a{n}", folder): folder for n, folder in enumerate(folders)}
    orders = [
        stage.order(
            tenants[n % 2],
            tuple(range(20 + n, 40 + 3 * n)),
            max_output_tokens=60 + 5 * n,
            adapter=(*adapters, None)[n % 4],
        )
        for n in range(10)
    ]
    stage.send(*orders)
    with slow_steps(0.02):
        async with running_worker(stage.settings("first", slots=4, **SMALL)):
            assert await comes_true(lambda: sum(len(a.log.token_ids) for a in stage.answers().values()) > 20)
    async with running_worker(stage.settings("second", slots=8, **SMALL)):
        answers = await stage.until_ended(orders)
    compared = 0
    for name in (*adapters, None):
        oracle = Oracle(model, adapter=None if name is None else adapters[name])
        for order in orders:
            if order.adapter == name:
                answer = answers[order.request_id]
                compared += assert_as_peft(order, answer, oracle)
                assert answer.log.text == tokenizer.decode(answer.log.token_ids, skip_special_tokens=True)
    assert compared > 300
    assert any(answer.attempts == [1, 2] and len(answer.log.token_ids) > 1 for answer in answers.values())


async def test_an_adapter_can_be_registered_after_its_first_order_and_registered_anew(
    stage: Stage, model: Path, folders: list[Path]
) -> None:
    tenant, name = stage.add_tenant(), f"late-{stage.deployment}@v1"
    answers: list[Answer] = []

    def ask() -> RequestRouted:
        order = stage.order(tenant, tuple(range(20, 50)), max_output_tokens=20, adapter=name)
        stage.send(order)
        return order

    async with running_worker(stage.settings("only", **SMALL)):
        order = ask()
        assert stage.register_adapter("late", folders[0]) == name
        answers.append((await stage.until_ended([order]))[order.request_id])
        stage.register_adapter("late", folders[1])
        while len(answers) < 100 and answers[-1].log.token_ids == answers[0].log.token_ids:  # until it has heard of it
            newest = ask()
            answers.append((await stage.until_ended([newest]))[newest.request_id])
    assert assert_as_peft(order, answers[0], Oracle(model, adapter=folders[0])) > 10
    assert assert_as_peft(newest, answers[-1], Oracle(model, adapter=folders[1])) > 10


async def test_an_adapter_that_can_not_be_loaded_ends_its_requests_alone(
    stage: Stage, model: Path, folders: list[Path], tmp_path: Path
) -> None:
    tenant = stage.add_tenant()
    good, broken = stage.register_adapter("good", folders[0]), stage.register_adapter("broken", tmp_path)
    orders = [stage.order(tenant, tuple(range(20, 50)), adapter=name) for name in (broken, good, broken, None)]
    async with running_worker(stage.settings("only", **SMALL)):
        stage.send(*orders)
        answers = await stage.until_ended(orders)
    for order in orders:
        (end,) = answers[order.request_id].terminals
        if order.adapter == broken:
            assert isinstance(end, GenerationFailed)
            assert (end.status, end.code) == (422, "adapter_unavailable")
            assert "adapter_config.json can't be read" in end.message
            assert str(tmp_path) not in end.message
        else:
            assert isinstance(end, GenerationFinished)
