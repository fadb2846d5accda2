"""The same promises with a real model: what goes over the log is what `generate()` makes, across two workers too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from schemas.events import GenerationFailed, GenerationFinished, LogitBias, RequestRouted, TokensGenerated
from tests.brokers import Broker
from tests.oracle import Oracle
from tests.slow_engine import slow_steps
from tests.tiny_model import make_tiny_model
from tests.worker_stage import Answer, Stage, comes_true, running_worker

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
ARRAY = '{"type": "array", "items": {"type": "integer", "maximum": 9999}, "minItems": 3}'


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
    stage: Stage, model_directory: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_directory)
    tenants = [stage.add_tenant(), stage.add_tenant()]
    orders = [
        stage.order(tenants[n % 2], tuple(tokenizer.encode(prompt)), max_output_tokens=100 + 5 * n)
        for n, prompt in enumerate(PROMPTS)
    ]
    stage.send(*orders)
    small = {"dtype": "float32", "max_step_tokens": 16}
    with slow_steps(0.02):
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


async def test_what_sequences_ask_for_survives_a_change_of_workers(stage: Stage) -> None:
    """Guided, penalized and with log probabilities: two workers give the log that one gives."""
    tenant = stage.add_tenant()
    prompt = tuple(range(40, 60))
    asked: list[dict[str, Any]] = [
        {"json_schema": ARRAY, "temperature": 1.0, "seed": 3, "top_logprobs": 2},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.3, "top_logprobs": 0},
        {"temperature": 1.3, "min_p": 0.05, "seed": 5, "logit_bias": (LogitBias(token_id=70, bias=3.0),)},
        {"json_schema": ARRAY, "temperature": 1.0, "seed": 4},
    ]
    hopeless = stage.order(tenant, prompt, json_schema='{"type": "objec"}')

    def orders() -> list[RequestRouted]:
        return [stage.order(tenant, prompt, max_output_tokens=60, **parameters) for parameters in asked]

    first, second = orders(), orders()
    with slow_steps(0.02):
        stage.send(*first)
        async with running_worker(stage.settings("first", slots=4, dtype="float32")):
            assert await comes_true(lambda: sum(len(a.log.token_ids) for a in stage.answers().values()) > 40)
    stage.send(*second, hopeless)
    async with running_worker(stage.settings("second", slots=3, dtype="float32")):
        answers = await stage.until_ended([*first, *second, hopeless])
    assert any(answers[order.request_id].attempts == [1, 2] for order in first)
    for parameters, interrupted, undisturbed in zip(asked, first, second, strict=True):
        one, other = answers[interrupted.request_id], answers[undisturbed.request_id]
        assert (one.log.token_ids, one.log.text) == (other.log.token_ids, other.log.text)
        assert one.log.token_ids
        wants = parameters.get("top_logprobs")
        for answer in (one, other):
            events = [event for event in answer.events if isinstance(event, TokensGenerated)]
            assert all(len(event.logprobs) == (0 if wants is None else len(event.token_ids)) for event in events)
            assert {len(told.top) for event in events for told in event.logprobs} <= {wants}
            if "json_schema" in parameters:
                assert_obeys(answer)
    (refused,) = answers[hopeless.request_id].terminals
    assert isinstance(refused, GenerationFailed)
    assert (refused.status, refused.code) == (400, "invalid_json_schema")
    assert "Invalid type: objec" in refused.message


def assert_obeys(answer: Answer) -> None:
    """The text is of the schema, or the beginning of one that its token limit cut."""
    (terminal,) = answer.terminals
    assert isinstance(terminal, GenerationFinished)
    if terminal.finish_reason == "stop":
        assert all(isinstance(entry, int) for entry in json.loads(answer.log.text))
    else:
        assert terminal.finish_reason == "length"
        assert answer.log.text.startswith("[")
