"""Runs the parts of one machine: does what the supervisor decides, and tells it what happened."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from eventlog.clock import monotonic
from infra.errors import InfraError
from infra.runtime.parts import (
    EXIT_CANNOT_WORK,
    Action,
    Backoff,
    BecameReady,
    Ended,
    Event,
    Kill,
    Start,
    StopPlan,
    StopRequested,
    SystemState,
    Terminate,
    Tick,
)
from infra.runtime.process import PartLaunch, PartProcess
from infra.runtime.supervisor import Supervisor

OnChange = Callable[[Supervisor], None]
_NOT_STARTED = 127


class Processes:
    """Owns the processes from `run` until it returns: then none is left."""

    def __init__(
        self,
        launches: Sequence[PartLaunch],
        logs: Path,
        on_change: OnChange,
        *,
        backoff: Backoff | None = None,
        stop_plan: StopPlan | None = None,
    ) -> None:
        self._launches = {launch.spec.name: launch for launch in launches}
        self._logs = logs
        self._on_change = on_change
        self._supervisor = Supervisor.plan([launch.spec for launch in launches], backoff, stop_plan)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._runs: dict[str, _Run] = {}

    @property
    def is_stopping(self) -> bool:
        return self._supervisor.stopping_since is not None

    def request_stop(self) -> None:
        """Stop in order; asked a second time, kill what is left."""
        self._events.put_nowait(StopRequested(at_once=self.is_stopping))

    async def run(self) -> Supervisor:
        """Start, watch and restart until a stop was requested or a part has failed; the last state of everything."""
        event: Event = Tick()
        while True:
            self._supervisor, actions = self._supervisor.step(event, monotonic())
            for action in actions:
                self._do(action)
            self._on_change(self._supervisor)
            if self._supervisor.state in (SystemState.STOPPED, SystemState.FAILED):
                return self._supervisor
            event = await self._next_event()

    async def _next_event(self) -> Event:
        deadline = self._supervisor.next_deadline()
        patience = None if deadline is None else max(0.0, deadline - monotonic())
        try:
            return await asyncio.wait_for(self._events.get(), patience)
        except TimeoutError:
            return Tick()

    def _do(self, action: Action) -> None:
        match action:
            case Start(name):
                self._runs[name] = _Run(self._launches[name], self._logs / f"{name}.log", self._events)
            case Terminate(name):
                self._runs[name].end(signal.SIGTERM)
            case Kill(name):
                self._runs[name].end(signal.SIGKILL)


class _Run:
    """One run of a part, from its preparation to its end; puts exactly one Ended into the queue, as the last thing."""

    def __init__(self, launch: PartLaunch, log: Path, events: asyncio.Queue[Event]) -> None:
        self._launch = launch
        self._name = launch.spec.name
        self._log = log
        self._events = events
        self._process: PartProcess | None = None
        self._told_to_end = asyncio.Event()
        self._task = asyncio.create_task(self._live(), name=f"part {self._name}")

    def end(self, number: signal.Signals) -> None:
        self._told_to_end.set()
        if self._process is not None:
            self._process.signal(number)

    async def _live(self) -> None:
        try:
            command = await asyncio.to_thread(self._launch.command)
            if self._told_to_end.is_set():
                self._events.put_nowait(Ended(self._name, 0, "it was told to end before it started"))
                return
            reports_ready = self._launch.until_ready is None
            self._process = await PartProcess.start(command, self._log, reports_ready=reports_ready)
        except InfraError as error:
            self._events.put_nowait(Ended(self._name, EXIT_CANNOT_WORK, str(error)))
            return
        except Exception as error:  # nobody else hears of it: a part that can't be started has ended
            self._events.put_nowait(Ended(self._name, _NOT_STARTED, f"{type(error).__name__}: {error}"))
            return
        if self._told_to_end.is_set():  # while it was being started
            self._process.signal(signal.SIGTERM)
        ready = asyncio.create_task(self._until_ready(self._process))
        status = await self._process.wait()
        why = await ready or self._process.why_it_ended()
        self._events.put_nowait(Ended(self._name, status, why))

    async def _until_ready(self, process: PartProcess) -> str:
        """Tell when it is ready. If waiting itself failed, end the process and say why."""
        if self._launch.until_ready is None:
            is_ready = await process.says_ready()
        else:
            try:
                await asyncio.to_thread(self._launch.until_ready, lambda: process.has_ended)
                is_ready = not process.has_ended
            except Exception as error:  # whatever it is, a part that can't be made ready must not linger
                if process.has_ended:
                    return ""
                process.signal(signal.SIGTERM)
                return str(error)
        if is_ready:
            self._events.put_nowait(BecameReady(self._name))
        return ""
