"""The views, on the real engine, over requests as the parts write them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from infra.trace import STAGES
from schemas.events import Event, GenerationFailed, GenerationFinished, QuotaSettled, RequestRejected, TokenLogEvent
from schemas.token_log import TokenLog
from tests.clickhouse_world import World, world
from tests.request_story import RECEIVED_US, Story, copy_of

_TENANTS = count()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("clickhouse")) as found:
        yield found


@pytest.fixture
def story() -> Story:
    """Of a tenant that no other test has."""
    return Story(tenant=f"tenant-{next(_TENANTS)}")


def request(database: World, story: Story, *events: tuple[str, Event]) -> dict[str, Any]:
    """The view's row once these events are in."""
    database.put(events)
    return database.row("SELECT * FROM requests WHERE request_id = {id:String} AND tenant = {tenant:String}",
                        id=story.request_id, tenant=story.tenant)  # fmt: skip


def stages(row: dict[str, Any]) -> dict[str, float]:
    """Those that were reached."""
    return {name: row[f"{name}_ms"] for name in STAGES if row[f"{name}_ms"] is not None}


def test_a_request_is_one_row_whose_stages_add_up_to_the_whole(database: World, story: Story) -> None:
    row = request(database, story, *story.whole())
    assert stages(row) == {
        "ingress": 2.0, "validate": 1.0, "quota": 2.0, "route": 0.5, "queue": 2.5, "schedule": 1.0, "prefill": 1.0,
        "decode": 29.0, "deliver": 1.1,
    }  # fmt: skip
    assert row["total_ms"] == 40.1
    assert sum(stages(row).values()) == pytest.approx(row["total_ms"], abs=1e-9)
    assert (row["status"], row["finish_reason"], row["error_code"]) == ("completed", "stop", "")
    assert (row["model"], row["model_version"], row["deployment"]) == ("chat", "chat@v1", "chat-v1")
    assert row["adapter"] == ""
    assert (row["worker"], row["endpoint"], row["transport"]) == ("worker-1", "responses", "sse")
    assert (row["prompt_tokens"], row["output_tokens"], row["attempts"], row["ttft_ms"]) == (3, 4, 1, 10.0)


def test_a_request_has_the_adapter_that_answers_it(database: World, story: Story) -> None:
    row = request(database, story, story.submitted(), story.validated(), story.routed(adapter="tone@v1"))
    assert (row["adapter"], row["model_version"]) == ("tone@v1", "chat@v1")


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("stop", "completed", ""),
        ("length", "incomplete", ""),
        ("cancelled", "cancelled", ""),
        ("timeout", "failed", "deadline_exceeded"),
    ],
)
def test_how_a_request_ended_is_its_status(database: World, story: Story, reason: str, status: str, code: str) -> None:
    row = request(database, story, story.submitted(), story.started(), story.finished(reason=reason))
    assert (row["status"], row["finish_reason"], row["error_code"]) == (status, reason, code)


def test_a_failure_has_the_code_that_its_client_saw(database: World, story: Story) -> None:
    failed = GenerationFailed(
        request_id=story.request_id, tenant=story.tenant, attempt=1, at_us=RECEIVED_US + 9_500, worker="w",
        deployment="d", model_version="chat@v1", status=500, error_type="server_error", code="engine_failed",
        message="out of memory", prompt_tokens=3, output_tokens=0,
    )  # fmt: skip
    row = request(database, story, *story.whole()[:5], (story.finished()[0], failed))
    assert (row["status"], row["error_code"], row["output_tokens"]) == ("failed", "engine_failed", 0)
    assert stages(row)["prefill"] == 0.5
    assert "decode" not in stages(row)


def test_the_prompt_of_a_request_that_a_worker_refused_counts_for_nothing(database: World, story: Story) -> None:
    refused = GenerationFailed(
        request_id=story.request_id, tenant=story.tenant, attempt=1, at_us=RECEIVED_US + 9_500, worker="w",
        deployment="d", model_version="chat@v1", status=422, error_type="invalid_request_error",
        code="adapter_unavailable", message="", prompt_tokens=3, output_tokens=0,
    )  # fmt: skip
    topic, settled = story.settled()
    assert isinstance(settled, QuotaSettled)
    nothing = replace(settled, prompt_tokens=0, output_tokens=0, released_tokens=19)
    row = request(database, story, *story.whole()[:4], (story.finished()[0], refused), (topic, nothing))
    assert (row["error_code"], row["prompt_tokens"], row["output_tokens"]) == ("adapter_unavailable", 0, 0)


@pytest.mark.parametrize(
    ("before", "rejection", "expected"),
    [
        (1, (1_700, "validate"), {"ingress": 1.0, "validate": 0.7}),
        (2, (4_000, "quota"), {"ingress": 2.0, "validate": 1.0, "quota": 1.0}),
    ],
)
def test_a_rejection_closes_the_stage_that_the_request_was_in(
    database: World, story: Story, before: int, rejection: tuple[int, str], expected: dict[str, float]
) -> None:
    at, stage = rejection
    row = request(database, story, *story.whole()[:before], story.rejected(at=at, stage=stage, code="no"))
    assert (row["status"], row["error_code"], row["worker"]) == ("rejected", "no", "")
    assert stages(row) == expected
    assert row["total_ms"] == at / 1000


def test_a_rejection_can_be_delivered(database: World, story: Story) -> None:
    row = request(database, story, story.submitted(), story.rejected(), story.delivered(at=2_000))
    assert stages(row) == {"ingress": 1.0, "validate": 0.7, "deliver": 0.3}
    assert row["total_ms"] == 2.0


def test_a_running_request_has_the_stages_that_are_over_and_no_total(database: World, story: Story) -> None:
    row = request(database, story, *story.whole()[:5])
    assert row["status"] == "running"
    assert stages(row) == {"ingress": 2.0, "validate": 1.0, "quota": 2.0, "route": 0.5, "queue": 2.5, "schedule": 1.0}
    assert (row["total_ms"], row["ended_at"]) == (None, None)


def test_an_answer_without_tokens_has_no_decode(database: World, story: Story) -> None:
    ended = story.finished(first_token=None, output=0)
    row = request(database, story, *story.whole()[:5], ended, copy_of(ended))
    assert (stages(row)["prefill"], row["ttft_ms"], row["output_tokens"]) == (30.0, None, 0)
    assert "decode" not in stages(row)
    assert sum(stages(row).values()) == row["total_ms"] == 39.0


def test_a_request_that_was_cancelled_in_the_queue_ends_there(database: World, story: Story) -> None:
    row = request(
        database, story, *story.whole()[:4], story.finished(at=8_500, reason="cancelled", first_token=None, output=0)
    )
    assert (row["status"], stages(row)["queue"], row["total_ms"]) == ("cancelled", 3.0, 8.5)
    assert "schedule" not in stages(row)


def test_decisions_that_a_processor_repeated_count_once_the_first_time(database: World, story: Story) -> None:
    late = [
        story.validated(at=70_000, started=60_000), story.admitted(at=71_000), story.routed(at=72_000),
        story.delivered(at=90_000),
    ]  # fmt: skip
    assert stages(request(database, story, *story.whole(), *late)) == {
        "ingress": 2.0, "validate": 1.0, "quota": 2.0, "route": 0.5, "queue": 2.5, "schedule": 1.0, "prefill": 1.0,
        "decode": 29.0, "deliver": 1.1,
    }  # fmt: skip


def test_a_resumed_delivery_counts_when_it_is_the_first_to_reach_the_end(database: World, story: Story) -> None:
    row = request(
        database, story, *story.whole()[:-1], story.delivered(at=50_000, resumed_after=3), story.delivered(at=60_000)
    )
    assert (row["deliver_ms"], row["total_ms"]) == (11.0, 50.0)


def test_a_missing_decision_gives_its_time_to_the_stage_before_and_the_sum_still_holds(
    database: World, story: Story
) -> None:
    events = [event for event in story.whole() if type(event[1]).__name__ not in ("RequestAdmitted", "RequestRouted")]
    row = request(database, story, *events)
    assert (row["quota_ms"], row["route_ms"], row["queue_ms"]) == (5.0, 0.0, 0.0)
    assert sum(stages(row).values()) == pytest.approx(row["total_ms"], abs=1e-9)


def log_of(draw: random.Random, story: Story) -> list[tuple[str, Event]]:
    """A token log that several workers have written, some of them after they were given up."""
    makers = [
        lambda at: story.rejected(at=at),
        lambda at: story.admitted(at=at),
        lambda at: story.started(at=at, attempt=draw.randrange(1, 4)),
        lambda at: story.started(at=at, attempt=draw.randrange(1, 4)),
        lambda at: story.finished(at=at, attempt=draw.randrange(1, 4), reason=draw.choice(["stop", "length"])),
    ]
    return [draw.choice(makers)(10_000 + place * 1_000) for place in range(draw.randrange(1, 9))]


def test_the_view_takes_the_ending_that_the_token_log_takes(database: World) -> None:
    draw = random.Random(7)
    ends: dict[str, int | None] = {}
    events: list[tuple[str, Event]] = []
    for number in range(400):
        story = Story(number=1_000 + number, tenant="folded")
        log, written = TokenLog(), log_of(draw, story)
        for _, event in written:
            assert isinstance(event, TokenLogEvent)
            log.apply(event)
        assert isinstance(log.terminal, RequestRejected | GenerationFinished | None)
        ends[story.request_id] = None if log.terminal is None else log.terminal.at_us
        events += written
    database.put(events)
    rows = database.rows(
        "SELECT request_id, toUnixTimestamp64Micro(ended_at) AS ended_us FROM requests WHERE tenant = 'folded'"
    )
    assert {row["request_id"]: row["ended_us"] for row in rows} == ends
    assert len(set(ends.values())) > 5


def test_latency_breakdown_has_percentiles_of_each_stage_by_tenant_model_version_and_hour(database: World) -> None:
    events: list[tuple[str, Event]] = []
    for number in range(1, 101):
        story = Story(number=number, tenant="measured")
        events += [*story.whole()[:5], story.finished(at=10_000 + number * 1_000)]
    refused = Story(number=500, tenant="measured")
    database.put([*events, refused.submitted(), refused.rejected()])
    rows = database.rows("SELECT * FROM latency_breakdown WHERE tenant = 'measured'")
    by_stage = {row["stage"]: row for row in rows}
    assert {(row["model"], row["model_version"], row["requests"]) for row in rows} == {("chat", "chat@v1", 100)}
    assert {row["hour"] for row in rows} == {"2026-11-30 00:00:00"}
    assert set(by_stage) == {*STAGES, "ttft", "total"} - {"deliver"}  # nobody says that these were delivered
    decode = by_stage["decode"]
    assert decode["p50_ms"] == pytest.approx(50.5, abs=1)
    assert decode["p95_ms"] == pytest.approx(95, abs=1)
    assert decode["p99_ms"] == pytest.approx(99, abs=1.1)
    assert by_stage["queue"]["p99_ms"] == 2.5


def test_a_lookup_by_request_reads_few_rows_without_final(database: World, story: Story) -> None:
    database.put(story.whole())
    plan = "\n".join(
        str(row) for row in database.rows("EXPLAIN indexes = 1 SELECT status FROM requests WHERE request_id = 'x'")
    )
    assert "by_request" in plan
    views = database.rows("SELECT create_table_query AS q FROM system.tables WHERE database = 'headrace'")
    assert not any(" FINAL" in view["q"] for view in views)
