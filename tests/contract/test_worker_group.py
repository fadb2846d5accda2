"""Two GPU consumers of one deployment, on a broker without other tenants, whose partitions they would share as well."""

from __future__ import annotations

from contextlib import closing

from schemas.events import GenerationFinished
from tests.brokers import Broker
from tests.worker_stage import TOPICS, Stage, assert_whole, comes_true, running_worker


async def test_a_second_worker_takes_a_part_of_the_work_and_of_what_is_running(broker: Broker) -> None:
    with closing(Stage(broker)) as stage:
        stage.register_model()
        tenant = stage.add_tenant()
        # eight seconds of work: on a busy machine a worker takes some to join
        orders = [stage.order(tenant, f"request {n} ", max_output_tokens=160) for n in range(8)]
        async with running_worker(stage.settings("first", echo_tokens_per_second=20.0)):
            for n, order in enumerate(orders):
                stage.send(order, partition=n % TOPICS.work)
            assert await comes_true(lambda: len(stage.answers()) == 8)
            async with running_worker(stage.settings("second", echo_tokens_per_second=20.0)):
                answers = await stage.until_ended(orders)
        for order in orders:
            answer = answers[order.request_id]
            (terminal,) = answer.terminals
            assert isinstance(terminal, GenerationFinished)
            assert_whole(order, answer, attempts=[1, 2] if terminal.worker == "second" else [1])
        # What one of the two partitions held moved, and what the other held was left alone; on a busy machine the first
        # worker may miss its heartbeats meanwhile, and then all of it moves.
        ends = [answers[order.request_id].terminals[0] for order in orders]
        assert sum(isinstance(end, GenerationFinished) and end.worker == "second" for end in ends) in (4, 8)
