"""How long streams stand still when their worker goes: told to leave (SIGTERM), against killed (SIGKILL).

Two workers, one of which goes in the middle of answers that are too long to be finished. A stream stands still from
the signal to the first token that the other worker adds; the longest of all streams counts. With KAFKA_HOME it is
Apache Kafka, else the embedded broker, where a member may join only every second.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from contextlib import closing
from pathlib import Path

from eventlog.clock import now_us
from schemas.events import GenerationStarted, TokensGenerated
from tests.benchmarks.row import BenchRow
from tests.brokers import Broker, running_broker
from tests.worker_stage import TOPICS, Answer, Stage, comes_true, worker_process

OUTPUT_TOKENS = 1_000
ORDERS = 8


def run() -> list[BenchRow]:
    """Each on a broker of its own, where there is no other tenant whose partitions the two would share as well."""
    drained, killed = (measured(how) for how in (signal.SIGTERM, signal.SIGKILL))
    return [BenchRow("worker_handover", drained, killed, "s", bar=0.5, higher_is_better=False)]


def measured(how: signal.Signals) -> float:
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        return asyncio.run(standstill(broker, how))


async def standstill(broker: Broker, how: signal.Signals) -> float:
    """Seconds."""
    with closing(Stage(broker)) as stage:
        stage.register_model()
        tenant = stage.add_tenant()
        settings = {"echo_tokens_per_second": 20.0, "drain_seconds": 2.5}
        with (
            worker_process(stage.settings("goes", **settings)) as going,
            worker_process(stage.settings("stays", **settings)),
        ):
            orders = [stage.order(tenant, f"order {n} ", max_output_tokens=OUTPUT_TOKENS) for n in range(ORDERS)]
            for number, order in enumerate(orders):
                stage.send(order, partition=number % TOPICS.work)
            assert await comes_true(lambda: sum(len(a.log.token_ids) > 5 for a in stage.answers().values()) == ORDERS)
            told_at_us = now_us()
            going.send_signal(how)

            def moved() -> list[int]:
                """When each stream went on."""
                return [at for answer in stage.answers().values() if (at := goes_on_at_us(answer)) is not None]

            assert await comes_true(lambda: len(moved()) >= ORDERS // TOPICS.work, 60)
            return (max(moved()) - told_at_us) / 1e6


def goes_on_at_us(answer: Answer) -> int | None:
    """When a second attempt gave its first token; None if there is none yet."""
    if not any(isinstance(event, GenerationStarted) and event.attempt > 1 for event in answer.events):
        return None
    tokens = (event.at_us for event in answer.events if isinstance(event, TokensGenerated) and event.attempt > 1)
    return next(tokens, None)
