"""A worker that is told to leave in mid-stream: what is short it finishes, and another one goes on with the rest.

On a broker without other tenants, whose partitions the two workers would share as well.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from schemas.events import GenerationFinished, GenerationStarted, RequestRouted
from tests.brokers import Broker
from tests.timing import within
from tests.worker_stage import TOPICS, Answer, Stage, assert_whole, comes_true, running_worker, worker_process

RATE = 50.0
SHORT_TOKENS, LONG_TOKENS = 40, 400
DRAIN_SECONDS = 4.0


@pytest.fixture(scope="module")
def stage(broker: Broker) -> Iterator[Stage]:
    with closing(Stage(broker)) as stage:
        stage.register_model()
        yield stage


def worker_of(answer: Answer) -> str:
    """Who ended it."""
    (terminal,) = answer.terminals
    assert isinstance(terminal, GenerationFinished)
    return terminal.worker


def first_worker_of(answer: Answer) -> str:
    return next(event.worker for event in answer.events if isinstance(event, GenerationStarted))


def held_by(stage: Stage, name: str, orders: list[RequestRouted]) -> list[RequestRouted]:
    """Those that this worker was the first to begin with."""
    answers = stage.answers()
    return [order for order in orders if first_worker_of(answers[order.request_id]) == name]


async def test_a_worker_told_to_leave_finishes_what_is_short_and_another_goes_on_with_the_rest(stage: Stage) -> None:
    tenant = stage.add_tenant()
    short = [stage.order(tenant, f"short {n} ", max_output_tokens=SHORT_TOKENS) for n in range(4)]
    long = [stage.order(tenant, f"long {n} ", max_output_tokens=LONG_TOKENS) for n in range(4)]
    settings = {"echo_tokens_per_second": RATE, "drain_seconds": DRAIN_SECONDS}
    with (
        worker_process(stage.settings("leaves", **settings)) as leaving,
        worker_process(stage.settings("stays", **settings)),
    ):
        # Each holds one of the two partitions as soon as the second has joined.
        for number, order in enumerate([*long, *short]):
            stage.send(order, partition=number % TOPICS.work)
        assert await comes_true(
            lambda: all(a.log.token_ids for a in stage.answers().values()) and len(stage.answers()) == 8
        )
        its_short, its_long = held_by(stage, "leaves", short), held_by(stage, "leaves", long)
        leaving.send_signal(signal.SIGTERM)
        later = stage.order(tenant, "comes later ", max_output_tokens=5)
        stage.send(later)
        assert leaving.wait(within(30)) == 0
        answers = await stage.until_ended([*short, *long, later], 60)
    assert len(its_long) >= 2
    for order in its_short:
        assert_whole(order, answers[order.request_id], attempts=[1])
        assert worker_of(answers[order.request_id]) == "leaves"
    for order in its_long:
        assert_whole(order, answers[order.request_id], attempts=[1, 2])
    for order in [*long, later]:
        assert worker_of(answers[order.request_id]) == "stays"
        assert answers[order.request_id].attempts[-1] <= 2


async def test_a_worker_that_finds_a_spot_notice_at_its_start_takes_no_work(stage: Stage, tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    notice.touch()
    order = stage.order(stage.add_tenant(), "not here ")
    stage.send(order)
    async with running_worker(stage.settings("spot", spot_notice_file=notice)) as worker:
        assert worker.done()
    assert order.request_id not in stage.answers()


async def test_a_worker_whose_machine_is_taken_away_leaves_as_if_it_was_told_to(stage: Stage, tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    with worker_process(stage.settings("spot", spot_notice_file=notice)) as process:
        assert process.poll() is None
        notice.touch()
        assert process.wait(within(30)) == 0
