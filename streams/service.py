"""The streams as one process: both stages, the registry that they share, and the watch over them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import start_http_server

from eventlog.clock import monotonic
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from models.errors import ModelError
from models.schema_judge import SchemaJudge
from streams.errors import StageFailed, StageStuck
from streams.metrics import StreamsMetrics
from streams.processors.decide import DecideStage
from streams.processors.validate import ValidateStage
from streams.progress import Position
from streams.schema_checks import SchemaChecks
from streams.settings import StreamsSettings
from streams.stage import Stage
from streams.tokenizers import TokenizerShelf

_LOG = logging.getLogger(__name__)
_WATCH_INTERVAL_S = 1.0


async def run(
    settings: StreamsSettings,
    stop: asyncio.Event,
    *,
    ready: Callable[[], None] | None = None,
    metrics: StreamsMetrics | None = None,
) -> None:
    """Run until `stop` is set, then commit and leave within two seconds.

    The shared topics must exist. `ready` is called when both stages read their topics. Raises LogUnreachable,
    StageFailed, StageStuck or CommitStuck, with a clear reason, when it can't go on: its supervisor starts it again,
    and the log holds all that was not done.
    """
    service = _Service(settings, metrics or StreamsMetrics())
    try:
        await service.start()
        if ready is not None:
            ready()
        await service.run_until(stop)
    finally:
        await service.stop()


class _Service:
    def __init__(self, settings: StreamsSettings, metrics: StreamsMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._reader = RegistryReader(
            settings.profile,
            client_id=f"{settings.group}-streams",
            unreadable=partial(metrics.unreadable_in, "registry"),
        )
        self._shelf = TokenizerShelf()
        self._decide = DecideStage(settings, metrics)
        self._checks = SchemaChecks(SchemaJudge())
        self._validate = ValidateStage(settings, metrics, self._shelf, self._checks)
        self._stages: tuple[Stage, ...] = (self._validate, self._decide)
        self._validate_started = False
        self._registry_changed = asyncio.Event()
        self._watch = LagWatch(settings.stuck_after_s)
        self._server = None
        if settings.metrics_port is not None:
            self._server, _ = start_http_server(settings.metrics_port, "127.0.0.1", metrics.registry)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        registry = await asyncio.to_thread(self._reader.start)
        await self._take_over(registry, start_decide=True)

        def changed(_registry: Registry) -> None:
            loop.call_soon_threadsafe(self._registry_changed.set)

        self._reader.listen(changed)

    async def run_until(self, stop: asyncio.Event) -> None:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.create_task(stop.wait(), name="stop"),
            asyncio.create_task(self._follow_registry(), name="registry"),
            asyncio.create_task(self._watch_stages(), name="watch"),
        ]
        try:
            failures: list[asyncio.Future[Any]] = [stage.failure for stage in self._stages]
            done, _ = await asyncio.wait([*tasks, *failures], return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        await asyncio.gather(*(stage.stop() for stage in self._stages), return_exceptions=True)
        for stage in self._stages:
            stage.failure.cancel()
        await asyncio.to_thread(self._reader.close)
        await asyncio.to_thread(self._checks.close)
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()

    async def _follow_registry(self) -> None:
        while True:
            await self._registry_changed.wait()
            self._registry_changed.clear()
            await self._take_over(self._reader.registry)

    async def _take_over(self, registry: Registry, *, start_decide: bool = False) -> None:
        """Hand a newer registry to the stages: first to `decide`, which must know whom `validate` lets through."""
        self._decide.registry = registry
        starting = [self._decide.start()] if start_decide else []
        await asyncio.to_thread(self._open_tokenizers, registry)
        self._validate.follow_tenants(registry)
        # Faust can't start an app that reads nothing, so `validate` waits for its first tenant.
        if registry.tenants and not self._validate_started:
            self._validate_started = True
            starting.append(self._validate.start())
        await asyncio.gather(*starting)

    def _open_tokenizers(self, registry: Registry) -> None:
        """Before the first request needs them: opening takes a moment."""
        for model in registry.models.values():
            try:
                self._shelf.get(model)
            except ModelError as error:
                _LOG.warning("the tokenizer of %s can't be opened: %s", model.model_version, error)

    async def _watch_stages(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            if self._reader.failure is not None:
                raise StageFailed(f"the control topics can't be followed: {self._reader.failure}")
            for stage in self._stages:
                lag = stage.lag()
                self._metrics.lag.labels(stage.name).set(sum(lag.values()))
                self._metrics.in_flight.labels(stage.name).set(stage.outbox.in_flight)
                self._watch.look(stage, lag, now_s=monotonic())
                stage.watch_commits(monotonic())


class LagWatch:
    """Faust's consumers are known to stop without a word: a partition that waits too long ends the process."""

    def __init__(self, stuck_after_s: float) -> None:
        self._stuck_after_s = stuck_after_s
        self._since: dict[Position, tuple[int, float]] = {}  # next offset, when it was first seen waiting

    def look(self, stage: Stage, lag: dict[Position, int], *, now_s: float) -> None:
        """lag: of each partition that the stage reads. Raises StageStuck."""
        for position, behind in lag.items():
            next_offset = stage.progress.next_offset(position)
            seen = self._since.get(position)
            if not behind or seen is None or seen[0] != next_offset:
                self._since[position] = (next_offset, now_s)
            elif now_s - seen[1] > self._stuck_after_s:
                topic, partition = position
                raise StageStuck(
                    f"{stage.name}: {behind} records wait in {topic}/{partition} at offset {next_offset}, and none "
                    f"was taken for {self._stuck_after_s:.0f} s"
                )
