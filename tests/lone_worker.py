"""The engine loop alone: a worker without a broker and without an intake, driven to its end in the test's thread."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import cast

from eventlog.producer import EventProducer, OnDelivery
from eventlog.telemetry import TelemetryWriter
from gpu_consumers.adapter_host import AdapterHost
from gpu_consumers.adapter_supply import AdapterSupply
from gpu_consumers.answer_writer import AnswerWriter
from gpu_consumers.engine import Engine, PreparesSchemas
from gpu_consumers.generation import Model
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.partition import HeldPartition
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.prior_attempts import PriorAttempts
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.telemetry import WorkerIdentity, WorkerTelemetry
from gpu_consumers.work import Cancel, Message, Wake, Work
from gpu_consumers.worker import Worker
from schemas.events import (
    AdapterRegistered,
    Event,
    GenerationFailed,
    GenerationFinished,
    RequestRouted,
    TelemetryEvent,
    TokenLogEvent,
)
from schemas.token_log import TokenLog
from schemas.topics import VALIDATED

MOST_STEPS = 5_000
MODEL_VERSION = "m@v1"


class Log:
    """A producer whose records are acknowledged at once, and what they say."""

    def __init__(self) -> None:
        self.answers: dict[str, TokenLog] = defaultdict(TokenLog)
        self.events: dict[str, list[TokenLogEvent]] = defaultdict(list)
        self.settled: list[GenerationFinished | GenerationFailed] = []
        self.reports: list[TelemetryEvent] = []

    def send(
        self,
        topic: str,
        event: Event,
        *,
        key: str,
        partition: int | None = None,
        on_delivery: OnDelivery,
        traceparent: bytes | None = None,
    ) -> None:
        if isinstance(event, TelemetryEvent):
            self.reports.append(event)
        elif topic == VALIDATED.name:
            assert isinstance(event, GenerationFinished | GenerationFailed)
            self.settled.append(event)
        else:
            assert isinstance(event, TokenLogEvent)
            self.events[key].append(event)
            self.answers[key].apply(event)
        on_delivery(None)

    def terminal(self, order: RequestRouted) -> GenerationFinished | GenerationFailed:
        """The one end of this request. Fails the test if it has none, or several."""
        (end,) = [e for e in self.events[order.request_id] if isinstance(e, GenerationFinished | GenerationFailed)]
        return end


class _Watched:
    """An engine that calls the test before each step."""

    def __init__(self, engine: Engine, before_step: Callable[[int], None]) -> None:
        self._engine = engine
        self._before_step = before_step
        self.steps = 0
        self.info = engine.info
        self.warm_up = engine.warm_up
        self.cached_tokens = engine.cached_tokens
        self.kv_use = engine.kv_use
        self.close = engine.close
        if isinstance(engine, PreparesSchemas):
            self.prepare_schema = engine.prepare_schema

    def execute(self, plan: StepPlan) -> StepResult:
        self._before_step(self.steps)
        self.steps += 1
        assert self.steps < MOST_STEPS, "it does not come to an end"
        return self._engine.execute(plan)


class LoneWorker:
    """`run` some orders to their end, or to where a message makes it leave."""

    def __init__(
        self,
        engine: Engine,
        model: Model,
        *,
        telemetry_seconds: float = 0.0,
        adapters: Iterable[AdapterRegistered] | None = None,
    ) -> None:
        """adapters: those that are registered; None for a worker that runs none."""
        self.log = Log()
        self.done: list[str] = []
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.before_step: Callable[[int], None] = lambda _step: None
        self._stop = threading.Event()
        self._expected = 0
        self._partition = HeldPartition("work.d.t", 0)
        self._offset = 0
        producer = cast(EventProducer, self.log)
        metrics = self.metrics = WorkerMetrics(deployment="d", worker="w")
        self._engine = _Watched(engine, lambda step: self.before_step(step))
        self.adapters: AdapterSupply | None = None
        if adapters is not None:
            assert isinstance(engine, AdapterHost)
            self.adapters = AdapterSupply(
                engine, model_version=MODEL_VERSION, metrics=metrics, wake=lambda: self.inbox.put(Wake())
            )
            self.adapters.registry_changed({adapter.adapter: adapter for adapter in adapters})
        self._worker = Worker(
            self._engine,
            model,
            AnswerWriter(producer, metrics, stop=self._stop, max_unacknowledged=1000),
            metrics,
            WorkerTelemetry(
                WorkerIdentity("w", "d", MODEL_VERSION),
                TelemetryWriter(producer, lambda: None),
                every_seconds=telemetry_seconds,
                now=0.0,
            ),
            worker_id="w",
            inbox=self.inbox,
            done=self._is_done,
            stop=self._stop,
            adapters=self.adapters,
        )

    def measured(self, costs: StepCosts) -> None:
        """What its engine's steps take, as it was told."""
        self._worker.set_step_costs(costs)

    def take(self, order: RequestRouted, prior: PriorAttempts | None = None) -> Work:
        """It comes from the intake. prior: what earlier workers left of it."""
        work = Work(order, self._partition, self._offset, 0, 1, prior=prior)
        self._offset += 1
        self._expected += 1
        self.inbox.put(work)
        return work

    def cancel(self, work: Work) -> None:
        work.cancelled = True
        self.inbox.put(Cancel(work))

    def run(self, orders: Iterable[RequestRouted] = ()) -> Log:
        """Until all that were taken have ended, or the worker has left. Raises what it raises."""
        for order in orders:
            self.take(order)
        self._worker.run()
        return self.log

    def _is_done(self, work: Work) -> None:
        self.done.append(work.order.request_id)
        if len(self.done) == self._expected:
            self._stop.set()
