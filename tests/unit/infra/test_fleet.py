"""What `headrace workers` makes of the telemetry topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.fleet import Member, members
from schemas.events import Event, GatewayReported, ThroughputMeasured, WorkerReported

NOW_US = 1_796_000_000_000_000
WORKER = WorkerReported(
    worker="w1", at_us=NOW_US - 2_000_000, deployment="chat-v1", model_version="chat@v1", state="running",
    interval_ms=4_000, steps=100, step_mean_us=20_000, step_max_us=50_000, prompt_tokens=500, output_tokens=1_000,
    finished_requests=3, running_requests=4, waiting_requests=2, kv_used_tokens=250, kv_capacity_tokens=1_000,
)  # fmt: skip
GATEWAY = GatewayReported(
    gateway="g1", at_us=NOW_US - 1_000_000, state="running", interval_ms=5_000, open_sockets=1, open_responses=6,
    accepted_requests=1, sent_events=1, slow_clients=0,
)  # fmt: skip
CURVE = ThroughputMeasured(
    worker="w1", at_us=NOW_US, deployment="chat-v1", model_version="chat@v1", engine="echo", device="cpu", dtype="",
    points=(),
)  # fmt: skip


def only(*events: Event) -> Member:
    (member,) = members(events, now_us=NOW_US)
    return member


def test_a_worker_is_what_its_newest_report_says() -> None:
    older = replace(WORKER, at_us=NOW_US - 9_000_000, output_tokens=7, state="stopping")
    assert only(older, WORKER, CURVE) == Member(
        name="w1", deployment="chat-v1", model_version="chat@v1", state="running", tokens_per_second=250.0, running=4,
        waiting=2, kv_share=0.25, seconds_ago=2.0,
    )  # fmt: skip


def test_a_gateway_has_responses_and_no_batch() -> None:
    assert only(GATEWAY) == Member(
        name="g1", deployment=None, model_version=None, state="running", tokens_per_second=None, running=6,
        waiting=None, kv_share=None, seconds_ago=1.0,
    )  # fmt: skip


def test_a_first_report_without_kv_memory_has_no_made_up_figures() -> None:
    member = only(replace(WORKER, interval_ms=0, output_tokens=0, kv_used_tokens=0, kv_capacity_tokens=0))
    assert (member.tokens_per_second, member.kv_share) == (None, None)


@pytest.mark.parametrize(
    ("interval_ms", "seconds_ago", "state"),
    [
        (5_000, 15, "running"),
        (5_000, 16, "silent"),
        (60_000, 179, "running"),
        (60_000, 181, "silent"),
        (0, 16, "silent"),
    ],
)
def test_who_misses_three_reports_is_silent(interval_ms: int, seconds_ago: int, state: str) -> None:
    at_us = NOW_US - seconds_ago * 1_000_000
    assert only(replace(WORKER, at_us=at_us, interval_ms=interval_ms)).state == state
    assert only(replace(GATEWAY, at_us=at_us, interval_ms=interval_ms)).state == state


@pytest.mark.parametrize(
    ("told", "state"), [("warming_up", "warming up"), ("draining", "draining"), ("of a later release", "running")]
)
def test_a_worker_that_takes_no_work_yet_or_no_more_shows_so(told: str, state: str) -> None:
    assert only(replace(WORKER, state=told)).state == state
    assert only(replace(WORKER, state=told, at_us=NOW_US - 16_000_000)).state == "silent"


def test_a_worker_that_warms_up_has_no_speed() -> None:
    assert only(replace(WORKER, state="warming_up", output_tokens=0)).tokens_per_second is None


def test_who_said_goodbye_is_stopped_however_long_ago() -> None:
    assert only(replace(WORKER, state="stopping", at_us=NOW_US - 200_000_000)).state == "stopped"


def test_a_clock_that_is_ahead_is_no_negative_age() -> None:
    assert only(replace(WORKER, at_us=NOW_US + 5_000_000)).seconds_ago == 0.0


def test_workers_come_by_deployment_and_gateways_last() -> None:
    events: list[Event] = [
        replace(GATEWAY, gateway="a-gateway"), replace(WORKER, worker="w2"), replace(WORKER, worker="w1"),
        replace(WORKER, worker="w3", deployment="base-v1"),
    ]  # fmt: skip
    assert [member.name for member in members(events, now_us=NOW_US)] == ["w3", "w1", "w2", "a-gateway"]
