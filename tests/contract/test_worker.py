"""What a GPU consumer promises, on whatever broker is at hand, with the echo engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from eventlog.clock import now_us
from gpu_consumers import service
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.errors import DeploymentUnknownError, WorkerFailedError
from gpu_consumers.partition import WaterMarks
from gpu_consumers.plan import StepPlan, StepResult
from schemas.events import (
    DeadLettered,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    RequestRouted,
    TokensGenerated,
)
from schemas.ids import partition_of
from schemas.topics import VALIDATED, Topics, dead_letters_topic, tokens_topic, work_topic
from tests.brokers import Broker
from tests.worker_stage import Stage, assert_whole, comes_true, echo, running_worker, worker_process


@pytest.fixture
def stage(broker: Broker) -> Iterator[Stage]:
    stage = Stage(broker)
    stage.register_model()
    yield stage
    stage.close()


def quota_copies(stage: Stage) -> list[GenerationFinished | GenerationFailed]:
    """Terminal events that quota is told of, of the stage's tenants."""
    return [
        event
        for event in stage.events(VALIDATED.name, range(Topics().validated))
        if isinstance(event, GenerationFinished | GenerationFailed) and event.tenant in stage.tenants
    ]


def everything_committed(stage: Stage) -> bool:
    return all(stage.committed(tenant) == stage.ends(tenant) for tenant in stage.tenants)


async def test_every_request_of_three_tenants_ends_once_with_its_whole_answer(stage: Stage) -> None:
    tenants = [stage.add_tenant() for _ in range(3)]
    orders = [stage.order(tenants[n % 3], f"prompt {n} ", max_output_tokens=5 + n % 20) for n in range(60)]
    stage.send(*orders[:30])
    async with running_worker(stage.settings()):
        stage.send(*orders[30:])
        answers = await stage.until_ended(orders)
        assert await comes_true(lambda: everything_committed(stage))
    for order in orders:
        assert_whole(order, answers[order.request_id], attempts=[1])
    assert sorted(copy.request_id for copy in quota_copies(stage)) == sorted(order.request_id for order in orders)


async def test_more_requests_than_are_held_at_once_are_all_answered(stage: Stage) -> None:
    tenant = stage.add_tenant()
    orders = [stage.order(tenant, f"{n} ", max_output_tokens=3) for n in range(200)]
    stage.send(*orders)
    async with running_worker(stage.settings(slots=3, marks=WaterMarks(high=5, low=2))):
        answers = await stage.until_ended(orders)
        assert await comes_true(lambda: everything_committed(stage))
    for order in orders:
        assert_whole(order, answers[order.request_id], attempts=[1])


async def test_a_killed_workers_answers_are_finished_by_the_next_one(stage: Stage) -> None:
    tenant = stage.add_tenant()
    orders = [stage.order(tenant, f"request {n} of several ", max_output_tokens=60) for n in range(6)]
    with worker_process(stage.settings("dies", slots=4, echo_tokens_per_second=20.0)) as process:
        stage.send(*orders)
        assert await comes_true(lambda: sum(len(a.log.token_ids) > 5 for a in stage.answers().values()) == 4)
        process.kill()
    logged = {request_id: list(answer.log.token_ids) for request_id, answer in stage.answers().items()}
    async with running_worker(stage.settings("takes-over")):
        answers = await stage.until_ended(orders)
        assert await comes_true(lambda: everything_committed(stage))
    for order in orders:
        assert_whole(order, answers[order.request_id], attempts=[1, 2] if order.request_id in logged else [1])
    for request_id, tokens in logged.items():
        second = answers[request_id].events[-1]
        assert isinstance(second, GenerationFinished)
        assert (second.attempt, second.worker) == (2, "takes-over")
        resumed = [e for e in answers[request_id].events if isinstance(e, GenerationStarted)][1]
        assert 5 < resumed.resumed_output_tokens >= len(tokens)


async def test_a_stopped_worker_leaves_its_requests_to_the_next_one(stage: Stage) -> None:
    tenant = stage.add_tenant()
    orders = [stage.order(tenant, f"request {n} of several ", max_output_tokens=60) for n in range(6)]
    stage.send(*orders)
    async with running_worker(stage.settings("leaves", slots=6, echo_tokens_per_second=20.0)):
        assert await comes_true(lambda: sum(len(a.log.token_ids) > 5 for a in stage.answers().values()) == 6)
    assert not any(answer.terminals for answer in stage.answers().values())
    async with running_worker(stage.settings("takes-over")):
        answers = await stage.until_ended(orders)
    for order in orders:
        assert_whole(order, answers[order.request_id], attempts=[1, 2])


async def test_a_cancel_ends_a_running_and_a_waiting_request(stage: Stage) -> None:
    tenant = stage.add_tenant()
    running = stage.order(tenant, "runs ", max_output_tokens=2000)
    waiting = stage.order(tenant, "waits ", max_output_tokens=2000)
    async with running_worker(stage.settings(slots=1, echo_tokens_per_second=50.0)):
        stage.send(running)
        assert await comes_true(lambda: len(stage.answers()[running.request_id].log.token_ids) > 3)
        stage.send(waiting)
        stage.cancel(waiting)
        answers = await stage.until_ended([waiting])
        assert not answers[running.request_id].terminals
        stage.cancel(running)
        answers = await stage.until_ended([running, waiting])
        assert await comes_true(lambda: everything_committed(stage))
    ends = [answers[order.request_id].terminals[0] for order in (running, waiting)]
    assert all(isinstance(end, GenerationFinished) and end.finish_reason == "cancelled" for end in ends)
    log = answers[running.request_id].log
    assert len(log.token_ids) > 3
    assert log.text == echo(running)[: len(log.token_ids)]
    assert answers[waiting.request_id].attempts == []


async def test_a_cancel_gets_through_to_a_paused_partition(stage: Stage) -> None:
    tenant = stage.add_tenant()
    orders = [stage.order(tenant, f"{n} goes on and on ", max_output_tokens=3000) for n in range(30)]
    async with running_worker(stage.settings(slots=2, echo_tokens_per_second=20.0, marks=WaterMarks(4, 2))):
        stage.send(*orders, partition=1)
        assert await comes_true(lambda: len(stage.answers()) == 2)
        # Far behind the pause: one for a request that runs, one for a request that is still in the log.
        for order in (orders[0], orders[-1], *orders[1:-1]):
            stage.cancel(order, partition=1)
        answers = await stage.until_ended(orders)
        assert await comes_true(lambda: everything_committed(stage))
    assert all(len(answers[order.request_id].terminals) == 1 for order in orders)
    assert sum(bool(answers[order.request_id].attempts) for order in orders) < 30


async def test_a_deadline_ends_a_waiting_request_and_a_running_one(stage: Stage) -> None:
    tenant = stage.add_tenant()
    async with running_worker(stage.settings(slots=1, echo_tokens_per_second=20.0)):
        at = now_us()
        running = stage.order(tenant, "runs ", max_output_tokens=2000, deadline_at_us=at + 1_000_000)
        waiting = stage.order(tenant, "waits ", max_output_tokens=2000, deadline_at_us=at + 500_000)
        stage.send(running, waiting)
        answers = await stage.until_ended([running, waiting])
    for order in (running, waiting):
        (end,) = answers[order.request_id].terminals
        assert isinstance(end, GenerationFinished)
        assert end.finish_reason == "timeout"


async def test_a_record_that_is_no_order_goes_to_the_dead_letters_and_the_next_is_served(stage: Stage) -> None:
    tenant, other = stage.add_tenant(), stage.add_tenant()
    topic = work_topic(stage.deployment, tenant)
    stray = stage.order(other, "stray")
    elsewhere = stage.order(tenant, "elsewhere", deployment="another")
    order = stage.order(tenant, "fine ")
    async with running_worker(stage.settings()):
        stage.send_bytes(topic, b"no event at all", partition=0)
        stage.send_event(topic, stray, key="k", partition=0)
        stage.send_event(topic, elsewhere, key="k", partition=0)
        stage.send(order, partition=0)
        answers = await stage.until_ended([order])
        assert await comes_true(lambda: stage.committed(tenant) == stage.ends(tenant) == [4, 0])
    assert_whole(order, answers[order.request_id], attempts=[1])
    assert list(answers) == [order.request_id]
    letters = stage.events(dead_letters_topic(tenant), [0])
    assert all(isinstance(letter, DeadLettered) for letter in letters)
    origins = {(x.origin_offset, x.reason, x.consumer) for x in letters if isinstance(x, DeadLettered)}
    by = f"gpu.{stage.deployment}"
    assert origins == {(0, "undecodable", by), (1, "unexpected_record", by), (2, "unexpected_record", by)}


async def test_a_tenant_registered_later_is_served_without_disturbing_the_others(stage: Stage) -> None:
    first = stage.add_tenant()
    long = stage.order(first, "runs all the while ", max_output_tokens=120)
    async with running_worker(stage.settings(echo_tokens_per_second=20.0)):
        stage.send(long)
        assert await comes_true(lambda: bool(stage.answers()[long.request_id].log.token_ids))
        second = stage.add_tenant()
        order = stage.order(second, "new here ", max_output_tokens=5)
        stage.send(order)
        answers = await stage.until_ended([order, long])
    assert_whole(order, answers[order.request_id], attempts=[1])
    assert_whole(long, answers[long.request_id], attempts=[1])
    assert answers[order.request_id].terminals[0].at_us < answers[long.request_id].terminals[0].at_us


async def test_a_repeated_order_is_answered_once(stage: Stage) -> None:
    tenant = stage.add_tenant()
    order = stage.order(tenant, "say it once ", max_output_tokens=10)
    stage.send(order, order)
    async with running_worker(stage.settings(echo_tokens_per_second=50.0)):
        stage.send(order)
        answers = await stage.until_ended([order])
        assert await comes_true(lambda: everything_committed(stage))
    assert_whole(order, answers[order.request_id], attempts=[1])


def finished(order: RequestRouted, output_tokens: int) -> GenerationFinished:
    return GenerationFinished(
        request_id=order.request_id, tenant=order.tenant, attempt=1, at_us=now_us(), worker="before",
        deployment=order.deployment, model_version=order.model_version, finish_reason="length",
        prompt_tokens=len(order.prompt_token_ids), output_tokens=output_tokens,
    )  # fmt: skip


def started(order: RequestRouted, attempt: int) -> GenerationStarted:
    return GenerationStarted(
        request_id=order.request_id, tenant=order.tenant, attempt=attempt, at_us=now_us(), pulled_at_us=now_us(),
        worker="before", deployment=order.deployment, model_version=order.model_version,
        prompt_tokens=len(order.prompt_token_ids),
    )  # fmt: skip


def generated(order: RequestRouted, text: str) -> TokensGenerated:
    return TokensGenerated(
        request_id=order.request_id, tenant=order.tenant, attempt=1, at_us=now_us(), index=0,
        token_ids=tuple(text.encode()), text_offset_chars=0, text=text,
    )  # fmt: skip


async def test_what_an_earlier_worker_left_decides_how_a_request_goes_on(stage: Stage) -> None:
    tenant = stage.add_tenant()
    ended, whole, deadly = (stage.order(tenant, f"{what} ", max_output_tokens=6) for what in ("ended", "whole", "bad"))
    stage.send(ended, whole, deadly)
    left: list[GenerationStarted | TokensGenerated | GenerationFinished] = [
        *(started(ended, 1), generated(ended, "ended "), finished(ended, 6)),
        *(started(whole, 1), generated(whole, "whole ")),
        *(started(deadly, attempt) for attempt in (1, 2, 3)),
    ]
    for event in left:
        key = event.request_id
        stage.send_event(tokens_topic(tenant), event, key=key, partition=partition_of(key))
    async with running_worker(stage.settings()):
        answers = await stage.until_ended([ended, whole, deadly])
        assert await comes_true(lambda: everything_committed(stage))
    copies = quota_copies(stage)
    assert len(answers[ended.request_id].events) == 3, "a request that had ended gets nothing more in its log"
    assert sorted(copy.request_id for copy in copies) == sorted(answers), "and quota hears of each"
    (end,) = answers[whole.request_id].terminals
    assert isinstance(end, GenerationFinished)
    assert (end.attempt, end.finish_reason, end.output_tokens) == (2, "length", 6)
    assert answers[whole.request_id].attempts == [1], "nothing was left to generate"
    (failure,) = answers[deadly.request_id].terminals
    assert isinstance(failure, GenerationFailed)
    assert (failure.attempt, failure.status, failure.code) == (4, 500, "worker_lost")


async def test_a_request_that_the_engine_cant_run_fails_alone(stage: Stage) -> None:
    tenant = stage.add_tenant()
    empty = stage.order(tenant, "")
    long = stage.order(tenant, "x" * 4090, max_output_tokens=10)
    outside = stage.order(tenant, (1, 2, 300))
    fine = stage.order(tenant, "fine ")
    async with running_worker(stage.settings()):
        stage.send(empty, long, outside, fine)
        answers = await stage.until_ended([empty, long, outside, fine])
    for order, why in ((empty, "prompt is empty"), (long, "4100 tokens"), (outside, "token id 300")):
        (failure,) = answers[order.request_id].terminals
        assert isinstance(failure, GenerationFailed)
        assert (failure.status, failure.code) == (422, "not_servable")
        assert why in failure.message
    assert_whole(fine, answers[fine.request_id], attempts=[1])


async def test_an_engine_that_breaks_ends_the_worker_and_no_request(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = stage.add_tenant()
    order = stage.order(tenant, "a few tokens ", max_output_tokens=20)
    stage.send(order)
    whole, steps = EchoEngine.execute, 0

    def breaks(self: EchoEngine, plan: StepPlan) -> StepResult:
        nonlocal steps
        steps += 1
        if steps > 5:
            raise RuntimeError("out of memory")
        return whole(self, plan)

    with monkeypatch.context() as patch:
        patch.setattr(EchoEngine, "execute", breaks)
        with pytest.raises(WorkerFailedError, match="RuntimeError: out of memory"):
            async with running_worker(stage.settings()) as task:
                await asyncio.wait([task])
    assert [answer.terminals for answer in stage.answers().values()] == [[]]
    async with running_worker(stage.settings()):
        answers = await stage.until_ended([order])
    assert_whole(order, answers[order.request_id], attempts=[1, 2])


async def test_the_group_hears_of_a_worker_only_when_its_engine_is_warm_and_measured(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    def noted(owner: object, name: str) -> None:
        whole = getattr(owner, name)

        def first_noted(*args: object, **kwargs: object) -> object:
            happened.append(name)
            return whole(*args, **kwargs)

        monkeypatch.setattr(owner, name, first_noted)

    noted(EchoEngine, "warm_up")
    noted(service, "measure_throughput")
    noted(service, "Intake")
    async with running_worker(stage.settings()):
        assert happened == ["warm_up", "measure_throughput", "Intake"]


async def test_a_deployment_that_is_not_registered_is_a_clear_error(stage: Stage) -> None:
    with pytest.raises(DeploymentUnknownError, match=r"'nobody'; known deployments: .*" + stage.deployment):
        async with running_worker(stage.settings(deployment="nobody", deployment_timeout_s=0.1)) as task:
            await asyncio.wait([task])
