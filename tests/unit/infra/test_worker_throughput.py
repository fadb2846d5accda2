"""The view `worker_throughput`, on the real engine, over reports as workers write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from schemas.events import Event, GatewayReported, ThroughputMeasured, ThroughputPoint, WorkerReported
from schemas.topics import TELEMETRY
from tests.clickhouse_world import World, world

MINUTE_US = 60_000_000
AT_US = 1_796_000_040_000_000  # a whole minute: 2026-11-30 00:54:00
REPORT = WorkerReported(
    worker="w", at_us=AT_US + 5_000_000, deployment="chat-v1", model_version="chat@v1", state="running",
    interval_ms=5_000, steps=100, step_mean_us=20_000, step_max_us=50_000, prompt_tokens=500, output_tokens=1_000,
    finished_requests=3, running_requests=4, waiting_requests=2, kv_used_tokens=250, kv_capacity_tokens=1_000,
)  # fmt: skip
CURVE = ThroughputMeasured(
    worker="w", at_us=AT_US - MINUTE_US, deployment="chat-v1", model_version="chat@v1", engine="torch", device="cpu",
    dtype="bfloat16",
    points=tuple(
        ThroughputPoint(batch_size=size, context_tokens=context, output_tokens_per_second=size * 100.0 - context)
        for size in (1, 4, 16) for context in (32, 256)
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("clickhouse")) as found:
        yield found


def minutes(database: World, worker: str, *events: WorkerReported | ThroughputMeasured) -> list[dict[str, Any]]:
    """The worker's rows, once these events are in as its own."""
    database.put((TELEMETRY.name, replace(event, worker=worker)) for event in events)
    return database.rows("SELECT * FROM worker_throughput WHERE worker = {w:String} ORDER BY minute", w=worker)


def test_a_minute_is_one_row_weighted_by_steps_and_time(database: World) -> None:
    second = replace(
        REPORT, at_us=AT_US + 10_000_000, interval_ms=15_000, steps=300, step_mean_us=40_000, step_max_us=45_000,
        prompt_tokens=0, output_tokens=3_000, running_requests=8, waiting_requests=0, kv_used_tokens=750,
    )  # fmt: skip
    next_minute = replace(REPORT, at_us=AT_US + MINUTE_US)
    first, other = minutes(database, "weighted", REPORT, second, next_minute)
    assert first == {
        "worker": "weighted", "minute": "2026-11-30 00:54:00", "deployment": "chat-v1", "model_version": "chat@v1",
        "state": "running", "reports": 2, "steps": 400, "step_mean_ms": 35.0, "step_max_ms": 50.0,
        "prompt_tokens_per_second": 25.0, "output_tokens_per_second": 200.0, "measured_tokens_per_second": None,
        "finished_requests": 6, "running_requests": 6.0, "waiting_requests": 1.0, "kv_share": 0.5,
    }  # fmt: skip
    assert (other["minute"], other["reports"], other["step_mean_ms"]) == ("2026-11-30 00:55:00", 1, 20.0)


def test_a_worker_that_warms_up_shows_so_and_changes_no_figure(database: World) -> None:
    warming_up = replace(
        REPORT, at_us=AT_US - MINUTE_US, state="warming_up", interval_ms=30_000, steps=0, step_mean_us=0, step_max_us=0,
        prompt_tokens=0, output_tokens=0, finished_requests=0, running_requests=0, waiting_requests=0,
        kv_used_tokens=0, kv_capacity_tokens=0,
    )  # fmt: skip
    late = replace(warming_up, at_us=AT_US + 1_000_000)
    before, first = minutes(database, "warms", CURVE, warming_up, late, REPORT)
    assert (before["state"], before["reports"], before["running_requests"]) == ("warming_up", 1, 0.0)
    assert before["output_tokens_per_second"] is None
    (alone,) = minutes(database, "warm", CURVE, REPORT)
    assert first == {**alone, "worker": "warms", "reports": 2}


def test_a_minute_has_the_state_of_its_last_report(database: World) -> None:
    drains = replace(REPORT, at_us=AT_US + 20_000_000, state="draining")
    (row,) = minutes(database, "drains", drains, REPORT)
    assert row["state"] == "draining"


def test_an_idle_worker_without_kv_memory_has_no_made_up_figures(database: World) -> None:
    idle = replace(
        REPORT, interval_ms=0, steps=0, step_mean_us=0, step_max_us=0, prompt_tokens=0, output_tokens=0,
        kv_used_tokens=0, kv_capacity_tokens=0,
    )  # fmt: skip
    (row,) = minutes(database, "idle", idle)
    unknown = ("step_mean_ms", "step_max_ms", "prompt_tokens_per_second", "output_tokens_per_second", "kv_share")
    assert [row[name] for name in unknown] == [None] * 5
    assert row["steps"] == 0


@pytest.mark.parametrize(
    ("running", "measured"), [(0, 68.0), (1, 68.0), (3, 368.0), (4, 368.0), (5, 1568.0), (99, 1568.0)]
)
def test_the_curve_is_read_at_the_batch_that_ran(database: World, running: int, measured: float) -> None:
    (row,) = minutes(database, f"curve-{running}", CURVE, replace(REPORT, running_requests=running))
    assert row["measured_tokens_per_second"] == measured


def test_of_several_curves_the_newest_counts(database: World) -> None:
    point = ThroughputPoint(batch_size=8, context_tokens=32, output_tokens_per_second=7.0)
    (row,) = minutes(database, "again", replace(CURVE, at_us=AT_US, points=(point,)), CURVE, REPORT)
    assert row["measured_tokens_per_second"] == 7.0


def test_gateways_are_no_workers(database: World) -> None:
    report = GatewayReported(
        gateway="g", at_us=AT_US, state="running", interval_ms=5_000, open_sockets=1, open_responses=1,
        accepted_requests=1, sent_events=1, slow_clients=0,
    )  # fmt: skip
    events: list[tuple[str, Event]] = [(TELEMETRY.name, report)]
    database.put(events)
    assert database.rows("SELECT * FROM worker_throughput WHERE worker IN ('g', '')") == []


def test_a_question_about_a_time_is_answered_by_the_primary_key(database: World) -> None:
    database.put([(TELEMETRY.name, REPORT)])
    plan = database.rows(
        "EXPLAIN indexes = 1 SELECT * FROM worker_throughput WHERE minute >= toDateTime('2026-11-30 00:54:00', 'UTC')"
    )
    text = "\n".join(str(row) for row in plan)
    assert "Condition: and((toStartOfMinute(at) in [" in text
