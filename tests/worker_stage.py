"""A deployment of its own on the test broker: tenants, work orders, cancels, and what came of them."""

from __future__ import annotations

import asyncio
import pickle
import secrets
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from eventlog.admin import LogAdmin
from eventlog.clock import monotonic, now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.reader import LogReader
from eventlog.registry import Registry
from gpu_consumers import service
from gpu_consumers.settings import WorkerSettings
from schemas.codec import Codec
from schemas.events import (
    AdapterRegistered,
    Event,
    GenerationFinished,
    GenerationStarted,
    ModelRegistered,
    RequestCancelled,
    RequestRouted,
    TenantRegistered,
    TerminalEvent,
    TokenLogEvent,
)
from schemas.ids import RANDOM_BITS, new_request_id
from schemas.token_log import TokenLog
from schemas.topics import Topics, tokens_topic, work_topic
from tests.brokers import Broker
from tests.timing import within

TOPICS = Topics(requests=1, work=2, tokens=2)


@dataclass(slots=True)
class Answer:
    """What the log says of one request."""

    log: TokenLog
    events: list[TokenLogEvent]

    @property
    def attempts(self) -> list[int]:
        return [event.attempt for event in self.events if isinstance(event, GenerationStarted)]

    @property
    def terminals(self) -> list[TerminalEvent]:
        return [event for event in self.events if isinstance(event, TerminalEvent)]


class Stage:
    """Use `settings()` to start workers on it."""

    def __init__(self, broker: Broker) -> None:
        self.profile = broker.profile
        self.deployment = f"d-{secrets.token_hex(4)}"
        self.tenants: list[str] = []
        self._registry = Registry()
        self._admin = LogAdmin(self.profile, TOPICS)
        self._admin.create_shared_topics()
        self._producer = EventProducer(self.profile, client_id="test")
        self._reader = LogReader(self.profile, client_id="test")

    def close(self) -> None:
        self._reader.close()
        self._producer.close()
        self._admin.close()

    def register_model(
        self, *, engine: str = "echo", location: str = "bytes", tokenizer: str = "bytes", context_tokens: int = 4096
    ) -> None:
        model = ModelRegistered(
            model_version=f"{self.deployment}@v1",
            at_us=now_us(),
            deployment=self.deployment,
            engine=engine,
            location=location,
            tokenizer=tokenizer,
            context_tokens=context_tokens,
            default_max_output_tokens=64,
        )
        self._admin.register_model(model, Registry())  # other tests' tenants need no topics of this deployment
        self._registry = self._registry.apply(model)

    def register_adapter(self, name: str, location: Path) -> str:
        """An adapter of the stage's model, and its name as orders have it: this deployment's alone."""
        adapter = f"{name}-{self.deployment}@v1"
        event = AdapterRegistered(
            adapter=adapter, at_us=now_us(), model_version=f"{self.deployment}@v1", location=str(location)
        )
        self._admin.register_adapter(event, self._registry)
        return adapter

    def add_tenant(self, *, weight: float = 1.0) -> str:
        tenant = f"t-{secrets.token_hex(4)}"
        self._admin.ensure(TOPICS.of_tenant(tenant, {self.deployment}))
        event = TenantRegistered(
            tenant=tenant, at_us=now_us(), requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4,
            weight=weight,
        )  # fmt: skip
        self._admin.register_tenant(event, Registry())
        self.tenants.append(tenant)
        return tenant

    def settings(self, worker_id: str = "worker-1", **changes: object) -> WorkerSettings:
        settings = WorkerSettings(
            profile=self.profile, deployment=self.deployment, worker_id=worker_id, topics=TOPICS,
            echo_tokens_per_second=0.0,
        )  # fmt: skip
        return replace(settings, **changes)  # type: ignore[arg-type]

    def order(self, tenant: str, prompt: str | tuple[int, ...], **fields: object) -> RequestRouted:
        """A work order that is not sent yet."""
        at = now_us()
        order = RequestRouted(
            request_id=new_request_id(
                now_ms=now_ms(), partition=secrets.randbelow(TOPICS.tokens), entropy=secrets.randbits(RANDOM_BITS)
            ),
            tenant=tenant,
            at_us=at,
            admitted_at_us=at,
            model=self.deployment,
            model_version=f"{self.deployment}@v1",
            deployment=self.deployment,
            reason="test",
            prompt_token_ids=tuple(prompt.encode()) if isinstance(prompt, str) else prompt,
            max_output_tokens=8,
            temperature=0.0,
            top_p=1.0,
            top_k=0,
            seed=1,
            stop=(),
        )
        return replace(order, **fields)  # type: ignore[arg-type]

    def send(self, *orders: RequestRouted, partition: int | None = None) -> None:
        for order in orders:
            topic = work_topic(order.deployment, order.tenant)
            self._producer.send(topic, order, key=order.request_id, partition=partition)
        assert self._producer.flush() == 0

    def cancel(self, order: RequestRouted, partition: int | None = None) -> None:
        event = RequestCancelled(request_id=order.request_id, tenant=order.tenant, at_us=now_us(), reason="client")
        topic = work_topic(self.deployment, order.tenant)
        self._producer.send(topic, event, key=order.request_id, partition=partition)
        assert self._producer.flush() == 0

    def send_bytes(self, topic: str, value: bytes, partition: int) -> None:
        self._producer.send_bytes(topic, value, key=b"k", headers=[], partition=partition)
        assert self._producer.flush() == 0

    def send_event(self, topic: str, event: Event, *, key: str, partition: int) -> None:
        self._producer.send(topic, event, key=key, partition=partition)
        assert self._producer.flush() == 0

    def answers(self) -> dict[str, Answer]:
        """The token logs of all tenants as they are now, by request id."""
        found: dict[str, Answer] = defaultdict(lambda: Answer(TokenLog(), []))
        starts = {(tokens_topic(tenant), p): 0 for tenant in self.tenants for p in range(TOPICS.tokens)}
        for record in self._reader.read_to_end(starts):
            event = record.event()
            assert isinstance(event, TokenLogEvent)
            answer = found[event.request_id]
            answer.events.append(event)
            answer.log.apply(event)
        return found

    def events(self, topic: str, partitions: Iterable[int]) -> list[Event]:
        found = []
        for record in self._reader.read_to_end({(topic, p): 0 for p in partitions}):
            if record.headers:  # tests share `validated`, and some put bytes there that are no event
                found.append(record.event())
        return found

    def ends(self, tenant: str) -> list[int]:
        """How many records each partition of the tenant's work topic holds."""
        topic = work_topic(self.deployment, tenant)
        counts = [0] * TOPICS.work
        for record in self._reader.read_to_end({(topic, p): 0 for p in range(TOPICS.work)}):
            counts[record.partition] = record.offset + 1
        return counts

    def committed(self, tenant: str) -> list[int]:
        """The group's offsets in the tenant's work topic; 0 where it has none."""
        consumer = Consumer(self.profile.consumer("test", group_id=f"gpu.{self.deployment}"))
        try:
            topic = work_topic(self.deployment, tenant)
            asked = [TopicPartition(topic, p) for p in range(TOPICS.work)]
            return [max(0, at.offset) for at in consumer.committed(asked, timeout=10.0)]
        finally:
            consumer.close()

    async def until_ended(self, orders: Iterable[RequestRouted], seconds: float = 30.0) -> dict[str, Answer]:
        """The answers when each of these requests has its terminal event."""
        wanted = {order.request_id for order in orders}

        def all_ended() -> bool:
            answers.clear()
            answers.update(self.answers())
            return all(request_id in answers and answers[request_id].terminals for request_id in wanted)

        answers: dict[str, Answer] = {}
        assert await comes_true(all_ended, seconds), (
            f"{len([r for r in wanted if r not in answers or not answers[r].terminals])} of {len(wanted)} did not end"
        )
        return answers


async def comes_true(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Whether it does within that time; asked off the loop, so that workers on the loop go on."""
    give_up_at = monotonic() + within(seconds)
    while monotonic() < give_up_at:
        if await asyncio.to_thread(condition):
            return True
        await asyncio.sleep(0.02)
    return False


@asynccontextmanager
async def running_worker(settings: WorkerSettings) -> AsyncIterator[asyncio.Task[None]]:
    """A worker in this process, ready; stopped at the end of the block, where its failure is raised."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(service.run(settings, stop=stop, ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        yield task
    finally:
        waiting.cancel()
        stop.set()
        await task


class SettingsPickler(pickle.Pickler):
    """A codec stays in its process: the other one has its own, which writes the same framing."""

    def reducer_override(self, value: object) -> Any:
        return (Codec, (value.framing,)) if isinstance(value, Codec) else NotImplemented


@contextmanager
def worker_process(settings: WorkerSettings) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own, ready; killed at the end of the block, if it still lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.worker_process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        SettingsPickler(process.stdin).dump(settings)
        process.stdin.close()
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def echo(order: RequestRouted) -> str:
    """What the echo engine answers."""
    prompt = bytes(order.prompt_token_ids).decode()
    return (prompt * order.max_output_tokens)[: order.max_output_tokens]


def assert_whole(order: RequestRouted, answer: Answer, attempts: list[int]) -> None:
    assert answer.log.text == echo(order)
    assert len(answer.log.token_ids) == order.max_output_tokens
    (terminal,) = answer.terminals
    assert isinstance(terminal, GenerationFinished)
    assert (terminal.finish_reason, terminal.output_tokens) == ("length", order.max_output_tokens)
    assert answer.attempts == attempts
