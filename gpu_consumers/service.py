"""A GPU consumer as a service: opens the engine, then joins the group, and leaves it cleanly.

Threads: the intake (polls, commits), recovery (reads token logs), the worker (owns the engine), one that reads LoRA
adapters, and the producer's (acknowledgements). This loop starts them, waits, and stops them in the order in which
nothing that was acknowledged is lost: the worker, what it sent, the intake with its last commit. Before that it may
drain (`gpu_consumers/drain.py`): nothing more is taken, and what is short is finished.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue

from prometheus_client import start_http_server

from eventlog.clock import monotonic, now_us
from eventlog.producer import EventProducer
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from eventlog.telemetry import TelemetryWriter
from gpu_consumers.adapter_host import AdapterHost
from gpu_consumers.adapter_supply import AdapterSupply
from gpu_consumers.answer_writer import AnswerWriter
from gpu_consumers.engine import Engine
from gpu_consumers.engine_choice import open_engine
from gpu_consumers.errors import DeploymentUnknownError, WorkerFailedError
from gpu_consumers.generation import Model
from gpu_consumers.intake import Intake
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.service_thread import ServiceThread
from gpu_consumers.settings import WorkerSettings
from gpu_consumers.spot_notice import watch_for_notice
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.telemetry import WorkerIdentity, WorkerTelemetry
from gpu_consumers.throughput import measure_throughput
from gpu_consumers.warm_up_reports import warm_up_reports
from gpu_consumers.work import Leave, Message, Wake, Weights
from gpu_consumers.worker import Worker
from models.tokenizer import open_tokenizer
from schemas.events import ModelRegistered, ThroughputMeasured

LINGER_MS = 1.0
"""Puts the records of one step, which go to a few partitions, into a few batches."""

_STOP_STEP_SECONDS = 0.8
_STOP_FLUSH_SECONDS = 0.5
_STOP_LEAVE_SECONDS = 2.0
_CLOSE_SECONDS = 0.1
_JOIN_SECONDS = 10.0
_LOOK_SECONDS = 0.05

log = logging.getLogger("headrace.worker")


async def run(settings: WorkerSettings, *, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Serve the deployment until `stop`, then drain and leave. `ready` is called when the engine is warm and the group
    was joined. `stop` is set by this, too, where settings name a spot notice and it comes.

    Raises GpuConsumerError: the deployment is unknown, the engine can't be opened or became unusable, a thread died.
    """
    with ExitStack() as stack:
        metrics = WorkerMetrics(deployment=settings.deployment, worker=settings.worker_id)
        reader = RegistryReader(
            settings.profile, client_id=settings.worker_id, unreadable=partial(metrics.unreadable, "registry")
        )
        stack.callback(reader.close)
        if settings.spot_notice_file is not None:
            watcher = asyncio.create_task(watch_for_notice(settings.spot_notice_file, stop), name="spot-notice")
            stack.callback(watcher.cancel)
        await asyncio.to_thread(reader.start)
        registered = await _registered_model(reader, settings, stop)
        if registered is None:
            return
        # Never giving a record up: a token log with a hole in it would hide all that comes behind the hole.
        producer = EventProducer(
            settings.profile, client_id=settings.worker_id, linger_ms=LINGER_MS, delivery_timeout_ms=0
        )
        stack.callback(producer.close, _CLOSE_SECONDS)
        identity = WorkerIdentity(settings.worker_id, settings.deployment, registered.model_version)
        telemetry = TelemetryWriter(producer, metrics.dropped_reports.inc)
        async with warm_up_reports(identity, telemetry, every_seconds=settings.telemetry_seconds, stop=stop):
            engine, model = await asyncio.to_thread(_open, registered, settings)
            throughput, costs = await asyncio.to_thread(_measured, engine, registered, settings)
        if stop.is_set():  # while it was loaded: then the group does not hear of this worker
            engine.close()
            return
        if settings.metrics_port is not None:
            server, _ = start_http_server(settings.metrics_port, "127.0.0.1", metrics.registry)
            log.info("metrics at http://127.0.0.1:%d/metrics", server.server_port)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        await _Running(settings, engine, model, metrics, reader, producer, telemetry, throughput, costs).until(
            stop, ready
        )  # fmt: skip


class _Running:
    """The threads of a worker, wired together."""

    def __init__(
        self,
        settings: WorkerSettings,
        engine: Engine,
        model: Model,
        metrics: WorkerMetrics,
        reader: RegistryReader,
        producer: EventProducer,
        telemetry: TelemetryWriter,
        throughput: ThroughputMeasured,
        costs: StepCosts | None,
    ) -> None:
        self._reader = reader
        self._throughput = throughput
        self._drain_seconds = settings.drain_seconds
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._stop_worker = threading.Event()
        self._stop_intake = threading.Event()
        self._producer = producer
        self._joined = asyncio.Event()
        self._intake = Intake(
            settings,
            self._producer,
            metrics,
            inbox=self._inbox,
            stop=self._stop_intake,
            joined=self._tell_joined(asyncio.get_running_loop()),
        )
        self._telemetry = telemetry
        writer = AnswerWriter(
            self._producer, metrics, stop=self._stop_worker, max_unacknowledged=4 * max(16, settings.slots)
        )
        self._adapters: AdapterSupply | None = None
        if isinstance(engine, AdapterHost) and engine.adapter_places:
            self._adapters = AdapterSupply(
                engine,
                model_version=throughput.model_version,
                metrics=metrics,
                wake=lambda: self._inbox.put(Wake()),
            )
        self._worker = Worker(
            engine,
            model,
            writer,
            metrics,
            WorkerTelemetry(
                WorkerIdentity(settings.worker_id, settings.deployment, throughput.model_version),
                self._telemetry,
                every_seconds=settings.telemetry_seconds,
                now=monotonic(),
            ),
            worker_id=settings.worker_id,
            inbox=self._inbox,
            done=self._intake.done,
            stop=self._stop_worker,
            adapters=self._adapters,
        )
        if costs is not None:
            self._worker.set_step_costs(costs)

    def _tell_joined(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._joined.set)

        return tell

    async def until(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        ended = asyncio.Event()
        worker = ServiceThread("worker", self._worker.run, ended)
        intake = ServiceThread("intake", self._intake.run, ended)
        self._reader.listen(self._registry_changed)
        if self._throughput.points:
            self._telemetry.write(self._throughput, key=self._throughput.worker)
        worker.start()
        intake.start()
        # A part that is ready takes work at once. In a group with more members than partitions nothing may be given.
        with suppress(TimeoutError):
            async with asyncio.timeout(_JOIN_SECONDS):
                await _first_of(stop, ended, self._joined)
        ready()
        await _first_of(stop, ended)
        told_at = monotonic()
        if self._drain_seconds and not ended.is_set():
            await self._drain(ended)
        await asyncio.to_thread(self._stop, worker, intake)
        log.info("left %.2f s after it was told to", monotonic() - told_at)
        for thread in (worker, intake):
            if thread.failure is not None:
                raise WorkerFailedError(f"the {thread.name} ended: {thread.failure}") from thread.failure

    async def _drain(self, ended: asyncio.Event) -> None:
        """Until the worker has nothing left that is short; it is stopped then, as it is when the time is over."""
        self._intake.take_nothing_more()
        self._inbox.put(Leave(monotonic() + self._drain_seconds))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                await ended.wait()

    def _stop(self, worker: ServiceThread, intake: ServiceThread) -> None:
        """A step that takes longer is left to itself: what it would give is not written, and made again elsewhere."""
        self._stop_worker.set()
        self._inbox.put(Wake())
        worker.join(_STOP_STEP_SECONDS)
        self._producer.flush(_STOP_FLUSH_SECONDS)
        self._stop_intake.set()
        intake.join(_STOP_LEAVE_SECONDS)
        self._producer.close(_CLOSE_SECONDS)

    def _registry_changed(self, registry: Registry) -> None:
        self._inbox.put(Weights({name: tenant.weight for name, tenant in registry.tenants.items()}))
        if self._adapters is not None:
            self._adapters.registry_changed(registry.adapters)
        self._intake.registry_changed(registry)


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _registered_model(
    reader: RegistryReader, settings: WorkerSettings, stop: asyncio.Event
) -> ModelRegistered | None:
    """The newest registration of the deployment, waited for; None if it is time to stop."""
    give_up_at = monotonic() + settings.deployment_timeout_s
    while not stop.is_set():
        models = [m for m in reader.registry.models.values() if m.deployment == settings.deployment]
        if models:
            return max(models, key=lambda m: m.at_us)
        if monotonic() >= give_up_at:
            known = ", ".join(sorted(reader.registry.deployments)) or "none"
            raise DeploymentUnknownError(
                f"no model is registered for the deployment {settings.deployment!r}; known deployments: {known}"
            )
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _open(registered: ModelRegistered, settings: WorkerSettings) -> tuple[Engine, Model]:
    """Engine and tokenizer, warm: all that can take long or fail, before the group hears of us."""
    began = monotonic()
    tokenizer = open_tokenizer(registered.tokenizer)
    engine = open_engine(registered, settings, tokenizer)
    engine.warm_up()
    log.info(
        "%s on the %s engine is warm after %.1f s", registered.model_version, registered.engine, monotonic() - began
    )
    return engine, Model(tokenizer, engine.info.eos_token_ids)


def _measured(
    engine: Engine, registered: ModelRegistered, settings: WorkerSettings
) -> tuple[ThroughputMeasured, StepCosts | None]:
    """What the engine can do, before the group hears of us, for others and for the scheduler."""
    began = monotonic()
    measured = measure_throughput(engine, budget_seconds=settings.throughput_seconds, clock=monotonic)
    points = measured.points
    if points:
        best = max(points, key=lambda point: point.output_tokens_per_second)
        log.info(
            "measured %d points of the throughput curve in %.1f s: up to %.0f tokens/s, with %d requests at once",
            len(points), monotonic() - began, best.output_tokens_per_second, best.batch_size,
        )  # fmt: skip
    is_echo = engine.info.name == "echo"
    event = ThroughputMeasured(
        worker=settings.worker_id,
        at_us=now_us(),
        deployment=settings.deployment,
        model_version=registered.model_version,
        engine=engine.info.name,
        device="cpu" if is_echo else settings.device,
        dtype="" if is_echo else settings.dtype,
        points=points,
    )
    return event, measured.costs
