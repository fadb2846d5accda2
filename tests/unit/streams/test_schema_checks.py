"""Schemas wait for the judge, and nothing else does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventlog.profile import BrokerProfile
from eventlog.record import Record
from models.errors import SchemaJudgeBusyError
from models.schema_judge import SchemaJudge
from schemas.codec import SINGLE_OBJECT
from schemas.events import Event, RequestRejected, RequestSubmitted, RequestValidated
from schemas.topics import Topics, requests_topic
from streams.decide import Output
from streams.metrics import StreamsMetrics
from streams.outbox import Pending
from streams.processors.validate import ValidateStage
from streams.schema_checks import SchemaChecks
from streams.settings import StreamsSettings
from streams.tokenizers import TokenizerShelf
from tests.timing import within
from tests.unit.streams.samples import model, registry, request_id, submitted

GOOD = '{"type": "object"}'
BUSY = '{"type": "busy"}'


class SlowJudge(SchemaJudge):
    """Knows every schema for a good one, and takes as long over `BUSY` as the test likes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.let_go = threading.Event()
        self.busy = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.closed = False

    def objection(self, json_schema: str) -> str | None:
        self.asked.append(json_schema)
        if json_schema == BUSY:
            self._loop.call_soon_threadsafe(self.busy.set)
            assert self.let_go.wait(within(30))
        return None

    def close(self) -> None:
        self.closed = True
        self.let_go.set()


@pytest.fixture
async def judge() -> AsyncIterator[SlowJudge]:
    judge = SlowJudge()
    yield judge
    judge.let_go.set()


class Kept:
    """In the outbox's place: keeps what a stage says."""

    def __init__(self) -> None:
        self.said: list[Event] = []

    async def send(self, _pending: Pending, output: Output) -> None:
        self.said.append(output.event)


def stage_with(checks: SchemaChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ValidateStage, Kept]:
    """A stage that no broker hears of."""
    monkeypatch.setattr("streams.stage.EventProducer", lambda *_, **__: None)
    settings = StreamsSettings(BrokerProfile("127.0.0.1:1"), Topics(), tmp_path)
    stage = ValidateStage(settings, StreamsMetrics(), TokenizerShelf(), checks)
    stage.registry = registry(model(engine="torch", context_tokens=100_000))
    kept = Kept()
    monkeypatch.setattr(stage, "outbox", kept)
    return stage, kept


async def process(stage: ValidateStage, request: RequestSubmitted) -> None:
    value = SINGLE_OBJECT.encode(request)
    record = Record(requests_topic(request.tenant), 0, 0, 0, request.request_id.encode(), value, [])
    await stage.process(record, Pending(lambda: None))


async def test_a_busy_judge_holds_up_no_long_prompt(
    judge: SlowJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = SchemaChecks(judge)
    stage, kept = stage_with(checks, tmp_path, monkeypatch)
    with ThreadPoolExecutor(1) as only_thread:
        asyncio.get_running_loop().set_default_executor(only_thread)
        flood = [
            asyncio.create_task(process(stage, submitted(json_schema=BUSY, request_id=request_id(number))))
            for number in range(40)
        ]
        await judge.busy.wait()

        async with asyncio.timeout(within(10)):
            await process(stage, submitted("x" * 20_000, request_id=request_id(99)))

        (said,) = kept.said
        assert isinstance(said, RequestValidated)
        assert said.request_id == request_id(99)
        judge.let_go.set()
        await asyncio.gather(*flood)
        assert len(kept.said) == 41
        checks.close()


async def test_who_waits_too_long_behind_others_is_told_to_come_back(
    judge: SlowJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = SchemaChecks(judge, queue_seconds=0.01)
    stage, kept = stage_with(checks, tmp_path, monkeypatch)
    first = asyncio.create_task(process(stage, submitted(json_schema=BUSY)))
    await judge.busy.wait()

    with pytest.raises(SchemaJudgeBusyError):
        await checks.objection(GOOD)
    await process(stage, submitted(json_schema=GOOD, request_id=request_id(1)))

    (said,) = kept.said
    assert isinstance(said, RequestRejected)
    assert (said.status, said.code, said.param) == (503, "overloaded", "json_schema")
    assert said.retry_after_ms is not None
    judge.let_go.set()
    await first
    assert await checks.objection(GOOD) is None, "the turn of who gave up is nobody's"
    checks.close()


async def test_what_was_judged_lately_needs_no_turn() -> None:
    judge = SchemaJudge()
    checks = SchemaChecks(judge, queue_seconds=0.01)
    assert await checks.objection(GOOD) is None

    await checks._turn.acquire()

    assert await checks.objection(GOOD) is None
    checks.close()


async def test_a_request_that_is_refused_anyhow_costs_the_judge_nothing(
    judge: SlowJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = SchemaChecks(judge)
    stage, kept = stage_with(checks, tmp_path, monkeypatch)

    await process(stage, submitted(json_schema=GOOD, temperature=9.0))
    assert judge.asked == []
    await process(stage, submitted(json_schema=GOOD, request_id=request_id(1)))

    assert judge.asked == [GOOD]
    assert [type(said) for said in kept.said] == [RequestRejected, RequestValidated]
    checks.close()


async def test_closing_ends_the_judge_and_the_thread(judge: SlowJudge) -> None:
    checks = SchemaChecks(judge)
    asking = asyncio.create_task(checks.objection(BUSY))
    await judge.busy.wait()

    await asyncio.to_thread(checks.close)

    assert judge.closed
    assert await asking is None
    with pytest.raises(RuntimeError):
        await checks.objection(GOOD)
