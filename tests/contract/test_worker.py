"""What a GPU consumer promises, on whatever broker is at hand, with the echo engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.events import GenerationFinished
from tests.brokers import Broker
from tests.worker_stage import Stage, comes_true, running_worker


@pytest.fixture
def stage(broker: Broker) -> Iterator[Stage]:
    stage = Stage(broker)
    stage.register_model()
    yield stage
    stage.close()


def echo(prompt: str, tokens: int) -> str:
    """What the echo engine answers."""
    return (prompt * tokens)[:tokens]


async def test_every_request_of_three_tenants_ends_once_with_its_whole_answer(stage: Stage) -> None:
    tenants = [stage.add_tenant() for _ in range(3)]
    orders = [stage.order(tenants[n % 3], f"prompt {n} ", max_output_tokens=5 + n % 20) for n in range(60)]
    stage.send(*orders[:30])
    async with running_worker(stage.settings()):
        stage.send(*orders[30:])
        answers = await stage.until_ended(orders)
        assert await comes_true(lambda: all(stage.committed(t) == stage.ends(t) for t in tenants))
    for order in orders:
        answer = answers[order.request_id]
        assert answer.log.text == echo(bytes(order.prompt_token_ids).decode(), order.max_output_tokens)
        assert len(answer.log.token_ids) == order.max_output_tokens
        (terminal,) = answer.terminals
        assert isinstance(terminal, GenerationFinished)
        assert (terminal.finish_reason, terminal.output_tokens) == ("length", order.max_output_tokens)
        assert answer.attempts == [1]
