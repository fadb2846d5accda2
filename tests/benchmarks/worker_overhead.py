"""What the worker costs: tokens a second through it, against a bare loop over the same engine that writes as much.

The echo engine at full speed, so that nothing but the pipeline is measured. The bare loop plans by hand, and hands
records of equal number and bytes to a bare confluent producer; it has no scheduler, no text, no events, no offsets.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.service import LINGER_MS
from infra.runtime.broker import BrokerChoice
from schemas.codec import encode
from schemas.events import GenerationFinished, GenerationStarted, TokensGenerated
from schemas.topics import tokens_topic
from tests.benchmarks.row import BenchRow
from tests.brokers import Broker, started_broker
from tests.worker_stage import TOPICS, Stage, running_worker

SLOTS = 64
REQUESTS = 4 * SLOTS
OUTPUT_TOKENS = 100
PROMPT = "All work and no play makes a dull benchmark. "
ROUNDS = 3


def run() -> list[BenchRow]:
    """Ours and the baseline by turns, on one broker; medians."""
    with tempfile.TemporaryDirectory() as directory, started_broker(BrokerChoice(), Path(directory)) as launch:
        broker = Broker(launch.bootstrap_servers, is_real=False)
        ours, bare = [], []
        for _ in range(ROUNDS):
            stage = Stage(broker)
            ours.append(asyncio.run(through_the_worker(stage)))
            bare.append(bare_loop(stage))
            stage.close()
    return [BenchRow("worker_overhead", statistics.median(ours), statistics.median(bare), "token/s", bar=0.5)]


async def through_the_worker(stage: Stage) -> float:
    """Tokens a second from the first slot given to the last answer's end, by the events' own times."""
    stage.register_model()
    tenants = [stage.add_tenant() for _ in range(3)]
    orders = [stage.order(tenants[n % 3], PROMPT, max_output_tokens=OUTPUT_TOKENS) for n in range(REQUESTS)]
    stage.send(*orders)
    async with running_worker(stage.settings(slots=SLOTS)) as worker:
        while not worker.done() and sum(sum(stage.committed(tenant)) for tenant in tenants) < REQUESTS:
            await asyncio.sleep(0.2)
    answers = stage.answers().values()
    began = min(e.at_us for answer in answers for e in answer.events if isinstance(e, GenerationStarted))
    ended = max(e.at_us for answer in answers for e in answer.events if isinstance(e, GenerationFinished))
    tokens = sum(len(answer.log.token_ids) for answer in answers)
    assert tokens == REQUESTS * OUTPUT_TOKENS
    return tokens / ((ended - began) / 1e6)


def bare_loop(stage: Stage) -> float:
    """Tokens a second: waves of full batches, every token of every sequence a record."""
    producer = Producer(stage.profile.producer("bare", linger_ms=LINGER_MS))
    topic = tokens_topic(stage.tenants[0])
    value = encode(
        TokensGenerated(
            request_id="0" * 36, tenant=stage.tenants[0], attempt=1, at_us=time.time_ns() // 1000, index=50,
            token_ids=(100,), text_offset_chars=50, text="d",
        )
    )  # fmt: skip
    engine = EchoEngine(slots=SLOTS)
    prompt = tuple(PROMPT.encode())
    began = time.perf_counter()
    for _ in range(REQUESTS // SLOTS):
        plan = StepPlan(
            admitted=tuple(
                Admission(slot, SamplingParams(), len(prompt) + OUTPUT_TOKENS) for slot in range(SLOTS)
            ),
            prefills=tuple(PrefillChunk(slot, prompt, 0, True) for slot in range(SLOTS)),
        )  # fmt: skip
        for step in range(OUTPUT_TOKENS):
            result = engine.execute(plan)
            for slot in result.tokens:
                producer.produce(topic, value, b"0" * 36, partition=slot % TOPICS.tokens)
            producer.poll(0)
            plan = StepPlan(
                decodes=tuple(Decode(slot, token, len(prompt) + step) for slot, token in result.tokens.items())
            )
        engine.execute(StepPlan(released=tuple(range(SLOTS))))
    producer.flush()
    return REQUESTS * OUTPUT_TOKENS / (time.perf_counter() - began)
