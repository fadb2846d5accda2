"""Who warms up is heard of, and what became of it."""

from __future__ import annotations

import asyncio

import pytest

from gpu_consumers.telemetry import WorkerIdentity
from gpu_consumers.warm_up_reports import warm_up_reports
from schemas.events import TelemetryEvent, WorkerReported
from tests.timing import within

IDENTITY = WorkerIdentity("w", "chat-v1", "chat@v1")


class Log:
    """Keeps what is written, and tells when there is this much."""

    def __init__(self, expected: int) -> None:
        self.written: list[WorkerReported] = []
        self.enough = asyncio.Event()
        self._expected = expected

    def write(self, event: TelemetryEvent, *, key: str) -> None:
        assert isinstance(event, WorkerReported)
        assert key == "w"
        self.written.append(event)
        if len(self.written) >= self._expected:
            self.enough.set()

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.written]


async def test_a_worker_reports_again_and_again_that_it_warms_up_and_no_more_when_it_is_warm() -> None:
    log = Log(3)
    async with (
        asyncio.timeout(within(10)),
        warm_up_reports(IDENTITY, log, every_seconds=0.001, stop=asyncio.Event()),
    ):
        await log.enough.wait()
    said = len(log.written)
    assert log.states == ["warming_up"] * said
    first = log.written[0]
    assert (first.worker, first.deployment, first.model_version) == ("w", "chat-v1", "chat@v1")
    assert (first.steps, first.running_requests, first.kv_capacity_tokens) == (0, 0, 0)
    await asyncio.sleep(0.01)
    assert len(log.written) == said


async def test_a_worker_that_can_not_be_opened_says_that_it_stops() -> None:
    log = Log(1)

    async def open_it() -> None:
        async with warm_up_reports(IDENTITY, log, every_seconds=3600.0, stop=asyncio.Event()):
            await log.enough.wait()
            raise RuntimeError("no such weights")

    with pytest.raises(RuntimeError, match="no such weights"):
        await open_it()
    assert log.states == ["warming_up", "stopping"]


async def test_a_worker_that_is_stopped_while_it_warms_up_says_so() -> None:
    log, stop = Log(1), asyncio.Event()
    async with warm_up_reports(IDENTITY, log, every_seconds=3600.0, stop=stop):
        await log.enough.wait()
        stop.set()
    assert log.states == ["warming_up", "stopping"]


async def test_a_worker_that_is_told_to_says_nothing() -> None:
    log, stop = Log(1), asyncio.Event()
    async with warm_up_reports(IDENTITY, log, every_seconds=0.0, stop=stop):
        await asyncio.sleep(0.01)
        stop.set()
    assert log.written == []
