"""What the worker costs: tokens a second through it, against a bare loop over the same engine that writes as much.

The echo engine at full speed, so that nothing but the pipeline is measured. The bare loop plans by hand, and hands as
many records and bytes as the worker wrote to a bare confluent producer (the worker puts several steps into one record
when the log is behind); it has no scheduler, no text, no events, no offsets.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from eventlog.clock import now_us
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.service import LINGER_MS
from infra.runtime.broker import BrokerChoice
from schemas.codec import encode
from schemas.events import GenerationStarted
from schemas.topics import tokens_topic
from tests.benchmarks.row import BenchRow
from tests.brokers import Broker, started_broker
from tests.worker_stage import TOPICS, Stage, comes_true, running_worker

SLOTS = 64
REQUESTS = 16 * SLOTS
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
            written = [encode(event) for answer in stage.answers().values() for event in answer.events]
            bare.append(bare_loop(stage, written))
            stage.close()
    return [BenchRow("worker_overhead", statistics.median(ours), statistics.median(bare), "token/s", bar=0.15)]


async def through_the_worker(stage: Stage) -> float:
    """Tokens a second, from the first slot given to the last answer's committed offset."""
    stage.register_model()
    tenants = [stage.add_tenant() for _ in range(3)]
    orders = [stage.order(tenants[n % 3], PROMPT, max_output_tokens=OUTPUT_TOKENS) for n in range(REQUESTS)]
    stage.send(*orders)
    async with running_worker(stage.settings(slots=SLOTS)):
        assert await comes_true(lambda: sum(sum(stage.committed(tenant)) for tenant in tenants) == REQUESTS, 60)
        ended = now_us()
    answers = stage.answers().values()
    began = min(e.at_us for answer in answers for e in answer.events if isinstance(e, GenerationStarted))
    tokens = sum(len(answer.log.token_ids) for answer in answers)
    assert tokens == REQUESTS * OUTPUT_TOKENS
    return tokens / ((ended - began) / 1e6)


def bare_loop(stage: Stage, written: list[bytes]) -> float:
    """Tokens a second, to the last acknowledgement: waves of full batches, these records spread over their steps."""
    producer = Producer(stage.profile.producer("bare", linger_ms=LINGER_MS))
    topic = tokens_topic(stage.tenants[0])
    engine = EchoEngine(slots=SLOTS)
    prompt = tuple(PROMPT.encode())
    steps = REQUESTS // SLOTS * OUTPUT_TOKENS
    tokens: Mapping[int, int] = {}
    began = time.perf_counter()
    for step in range(steps):
        position = step % OUTPUT_TOKENS
        if position == 0:
            plan = StepPlan(
                released=tuple(range(SLOTS)) if step else (),
                admitted=tuple(Admission(n, SamplingParams(), len(prompt) + OUTPUT_TOKENS) for n in range(SLOTS)),
                prefills=tuple(PrefillChunk(slot, prompt, 0, True) for slot in range(SLOTS)),
            )
        else:
            at = len(prompt) + position - 1
            plan = StepPlan(decodes=tuple(Decode(slot, token, at) for slot, token in tokens.items()))
        tokens = engine.execute(plan).tokens
        assert len(tokens) == SLOTS
        for n in range(len(written) * step // steps, len(written) * (step + 1) // steps):
            producer.produce(topic, written[n], b"0" * 36, partition=n % TOPICS.tokens)
        producer.poll(0)
    producer.flush()
    return steps * SLOTS / (time.perf_counter() - began)
