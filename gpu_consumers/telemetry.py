"""What a worker tells of itself: a report every few seconds, the first when it begins and the last when it stops.

While it takes work, the engine loop owns all of it: a report is late by the step that it is in, and one that does not
come at all says that the engine is stuck. Until then `gpu_consumers/warm_up_reports.py` tells that it warms up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eventlog.telemetry import Writer
from gpu_consumers.engine import KvUse
from schemas.events import WorkerReported

State = Literal["warming_up", "running", "draining", "stopping"]


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who reports."""

    worker: str
    deployment: str
    model_version: str


@dataclass(frozen=True, slots=True)
class Load:
    """How full a worker is at one moment."""

    running_requests: int
    waiting_requests: int
    kv: KvUse


@dataclass(slots=True)
class _Counts:
    """`since` is when they began."""

    since: float
    steps: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    finished_requests: int = 0


class StepStatistics:
    """Counts since the last report. Pure. Times are seconds on a clock that never goes back."""

    def __init__(self, now: float) -> None:
        self._counts = _Counts(now)

    def add(self, seconds: float, prompt_tokens: int, output_tokens: int) -> None:
        """One step of the engine."""
        counts = self._counts
        counts.steps += 1
        counts.seconds += seconds
        counts.longest_seconds = max(counts.longest_seconds, seconds)
        counts.prompt_tokens += prompt_tokens
        counts.output_tokens += output_tokens

    def request_finished(self) -> None:
        """However it ended."""
        self._counts.finished_requests += 1

    def report(self, identity: WorkerIdentity, load: Load, *, state: State, now: float, now_us: int) -> WorkerReported:
        """The counts so far, which begin again at 0."""
        counts, self._counts = self._counts, _Counts(now)
        return WorkerReported(
            worker=identity.worker,
            at_us=now_us,
            deployment=identity.deployment,
            model_version=identity.model_version,
            state=state,
            interval_ms=round((now - counts.since) * 1000),
            steps=counts.steps,
            step_mean_us=round(counts.seconds * 1e6 / counts.steps) if counts.steps else 0,
            step_max_us=round(counts.longest_seconds * 1e6),
            prompt_tokens=counts.prompt_tokens,
            output_tokens=counts.output_tokens,
            finished_requests=counts.finished_requests,
            running_requests=load.running_requests,
            waiting_requests=load.waiting_requests,
            kv_used_tokens=load.kv.used_tokens,
            kv_capacity_tokens=load.kv.capacity_tokens,
        )


class WorkerTelemetry:
    """When a report is due, and where it goes. `statistics` are for the engine loop to fill."""

    def __init__(
        self,
        identity: WorkerIdentity,
        writer: Writer,
        *,
        every_seconds: float,
        now: float,
        state: Literal["warming_up", "running"] = "running",
    ) -> None:
        """every_seconds: 0 for no reports at all."""
        self.statistics = StepStatistics(now)
        self._identity = identity
        self._writer = writer
        self._every_seconds = every_seconds
        self._state: State = state
        self._due_at = now if every_seconds > 0 else float("inf")

    def due_in(self, now: float) -> float:
        """Seconds until the next report, 0 if it is due; infinite if there are none."""
        return max(0.0, self._due_at - now)

    def report(self, load: Load, *, now: float, now_us: int) -> None:
        """That this worker is there, and what it does."""
        self._write(self._state, load, now, now_us)
        self._due_at = now + self._every_seconds

    def drain_begins(self, now: float) -> None:
        """Reports say so from now on, and one is due at once."""
        self._state = "draining"
        self._due_at = min(self._due_at, now) if self._every_seconds > 0 else self._due_at

    def last_report(self, load: Load, *, now: float, now_us: int) -> None:
        """That this worker stops; not more than this once."""
        if self._every_seconds > 0:
            self._write("stopping", load, now, now_us)

    def _write(self, state: State, load: Load, now: float, now_us: int) -> None:
        event = self.statistics.report(self._identity, load, state=state, now=now, now_us=now_us)
        self._writer.write(event, key=self._identity.worker)
