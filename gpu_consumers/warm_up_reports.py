"""Reports of a worker that takes no work yet: its engine may take minutes to load, to warm up and to be measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from eventlog.clock import monotonic, now_us
from eventlog.telemetry import Writer
from gpu_consumers.engine import KvUse
from gpu_consumers.telemetry import Load, WorkerIdentity, WorkerTelemetry

_NO_LOAD: Final = Load(0, 0, KvUse(0, 0))


@asynccontextmanager
async def warm_up_reports(
    identity: WorkerIdentity, writer: Writer, *, every_seconds: float, stop: asyncio.Event
) -> AsyncIterator[None]:
    """While this is open, reports say that the worker warms up; the first does at once.

    When it is left with an error or with `stop` set, so without a worker, a last report says that it stops.
    every_seconds: 0 for no reports at all.
    """
    telemetry = WorkerTelemetry(identity, writer, every_seconds=every_seconds, now=monotonic(), state="warming_up")
    reporting = asyncio.create_task(_report(telemetry), name="warm-up-reports")
    failed = True
    try:
        yield
        failed = False
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        if failed or stop.is_set():
            telemetry.last_report(_NO_LOAD, now=monotonic(), now_us=now_us())


async def _report(telemetry: WorkerTelemetry) -> None:
    while True:
        await asyncio.sleep(telemetry.due_in(monotonic()))
        if not telemetry.due_in(now := monotonic()):
            telemetry.report(_NO_LOAD, now=now, now_us=now_us())
