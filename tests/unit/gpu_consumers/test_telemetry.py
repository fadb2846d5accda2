"""What a worker reports, and when."""

from __future__ import annotations

from gpu_consumers.engine import KvUse
from gpu_consumers.telemetry import Load, StepStatistics, WorkerIdentity, WorkerTelemetry
from schemas.events import TelemetryEvent, WorkerReported

IDENTITY = WorkerIdentity("w", "chat-v1", "chat@v1")
LOAD = Load(3, 2, KvUse(640, 4096))


class Log:
    """Keeps what is written, with its key."""

    def __init__(self) -> None:
        self.written: list[tuple[str, WorkerReported]] = []

    def write(self, event: TelemetryEvent, *, key: str) -> None:
        assert isinstance(event, WorkerReported)
        self.written.append((key, event))


def test_a_report_has_the_counts_since_the_last_one_and_begins_them_again() -> None:
    statistics = StepStatistics(now=10.0)
    statistics.add(0.020, prompt_tokens=32, output_tokens=4)
    statistics.add(0.050, prompt_tokens=0, output_tokens=4)
    statistics.request_finished()
    report = statistics.report(IDENTITY, LOAD, state="running", now=15.0, now_us=7)
    assert report == WorkerReported(
        worker="w", at_us=7, deployment="chat-v1", model_version="chat@v1", state="running", interval_ms=5000, steps=2,
        step_mean_us=35_000, step_max_us=50_000, prompt_tokens=32, output_tokens=8, finished_requests=1,
        running_requests=3, waiting_requests=2, kv_used_tokens=640, kv_capacity_tokens=4096,
    )  # fmt: skip
    statistics.add(0.010, prompt_tokens=1, output_tokens=1)
    after = statistics.report(IDENTITY, LOAD, state="running", now=15.5, now_us=8)
    assert (after.interval_ms, after.steps, after.step_max_us, after.prompt_tokens) == (500, 1, 10_000, 1)
    assert (after.output_tokens, after.finished_requests) == (1, 0)


def test_an_idle_interval_has_no_step_times() -> None:
    report = StepStatistics(now=0.0).report(IDENTITY, LOAD, state="running", now=5.0, now_us=1)
    assert (report.steps, report.step_mean_us, report.step_max_us) == (0, 0, 0)


def test_reports_are_due_at_once_and_then_in_every_interval() -> None:
    log = Log()
    telemetry = WorkerTelemetry(IDENTITY, log, every_seconds=5.0, now=100.0)
    assert telemetry.due_in(100.0) == 0.0
    telemetry.report(LOAD, now=100.0, now_us=1)
    assert telemetry.due_in(100.0) == 5.0
    assert telemetry.due_in(104.5) == 0.5
    assert telemetry.due_in(109.0) == 0.0
    telemetry.report(LOAD, now=109.0, now_us=2)
    assert telemetry.due_in(109.0) == 5.0, "a late report is no reason to hurry with the next one"
    telemetry.last_report(LOAD, now=110.0, now_us=3)
    assert [(key, event.at_us, event.state, event.interval_ms) for key, event in log.written] == [
        ("w", 1, "running", 0),
        ("w", 2, "running", 9000),
        ("w", 3, "stopping", 1000),
    ]


def test_a_drain_is_reported_at_once() -> None:
    log = Log()
    telemetry = WorkerTelemetry(IDENTITY, log, every_seconds=5.0, now=100.0)
    telemetry.report(LOAD, now=100.0, now_us=1)
    telemetry.drain_begins(101.0)
    assert telemetry.due_in(101.0) == 0.0
    telemetry.report(LOAD, now=101.0, now_us=2)
    assert telemetry.due_in(101.0) == 5.0
    assert [event.state for _, event in log.written] == ["running", "draining"]


def test_an_interval_of_0_is_no_reports_at_all() -> None:
    log = Log()
    telemetry = WorkerTelemetry(IDENTITY, log, every_seconds=0.0, now=100.0)
    telemetry.drain_begins(100.0)
    assert telemetry.due_in(1e9) == float("inf")
    telemetry.last_report(LOAD, now=110.0, now_us=3)
    assert log.written == []
