"""What workers and gateways tell of themselves, on whatever broker is at hand, and how the command line shows it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from gateway.settings import GatewaySettings
from infra.cli import run
from schemas.events import GatewayReported, TelemetryEvent, ThroughputMeasured, WorkerReported
from schemas.topics import TELEMETRY
from tests.brokers import Broker
from tests.contract.gateway_world import FakeUpstream, register_model, register_tenant, running_gateway
from tests.worker_stage import Stage, comes_true, running_worker


@pytest.fixture
def stage(broker: Broker) -> Iterator[Stage]:
    stage = Stage(broker)
    stage.register_model()
    yield stage
    stage.close()


def told_by(profile: BrokerProfile, name: str) -> list[TelemetryEvent]:
    """All that this worker or gateway has told, in order."""
    with LogReader(profile, client_id="test-telemetry") as reader:
        records = list(reader.read_to_end({(TELEMETRY.name, 0): 0}))
    events = [record.event() for record in records if record.key == name.encode()]
    return [event for event in events if isinstance(event, TelemetryEvent)]


async def test_a_worker_measures_itself_then_reports_until_it_stops(stage: Stage) -> None:
    worker, tenant = f"w-{secrets.token_hex(4)}", stage.add_tenant()
    orders = [stage.order(tenant, "hello ", max_output_tokens=20) for _ in range(6)]
    stage.send(*orders)
    settings = stage.settings(
        worker, slots=3, echo_tokens_per_second=500.0, telemetry_seconds=0.05, throughput_seconds=30.0
    )
    async with running_worker(settings):
        await stage.until_ended(orders)
        assert await comes_true(lambda: sum(stage.committed(tenant)) == 6)
    events = told_by(stage.profile, worker)
    (measured_at,) = [at for at, event in enumerate(events) if isinstance(event, ThroughputMeasured)]
    before, curve, reports = events[:measured_at], events[measured_at], events[measured_at + 1 :]

    assert {event.state for event in before if isinstance(event, WorkerReported)} == {"warming_up"}
    assert isinstance(curve, ThroughputMeasured)
    assert (curve.deployment, curve.model_version) == (stage.deployment, f"{stage.deployment}@v1")
    assert (curve.engine, curve.device, curve.dtype) == ("echo", "cpu", "")
    assert [(point.batch_size, point.context_tokens) for point in curve.points] == [
        (size, context) for size in (1, 2, 3) for context in (32, 256, 2048)
    ]
    told = [report for report in reports if isinstance(report, WorkerReported)]
    assert [report.state for report in told] == [*["running"] * (len(reports) - 1), "stopping"]
    assert (told[0].steps, told[0].finished_requests) == (0, 0), "the first report comes before the first work"
    assert sum(report.output_tokens for report in told) == 6 * 20
    assert sum(report.prompt_tokens for report in told) == 6 * len("hello ")
    assert sum(report.finished_requests for report in told) == 6
    assert max(report.running_requests for report in told) <= 3
    assert (told[-1].running_requests, told[-1].waiting_requests) == (0, 0)
    assert all(report.step_max_us >= report.step_mean_us > 0 for report in told if report.steps)


async def test_a_worker_that_is_told_to_says_nothing(stage: Stage) -> None:
    worker, tenant = f"w-{secrets.token_hex(4)}", stage.add_tenant()
    order = stage.order(tenant, "quiet ")
    async with running_worker(stage.settings(worker, telemetry_seconds=0.0)):
        stage.send(order)
        await stage.until_ended([order])
    assert told_by(stage.profile, worker) == []


async def test_a_gateway_reports_what_it_served(broker: Broker) -> None:
    profile, name = broker.profile, f"gw-{secrets.token_hex(4)}"
    register_model(profile)
    key = register_tenant(profile, name)
    body = {"model": "chat", "input": "one two three", "max_output_tokens": 8}
    with (
        FakeUpstream(profile, [name]),
        running_gateway(GatewaySettings(profile=profile, gateway_id=name, telemetry_seconds=0.05)) as gateway,
    ):
        async with httpx.AsyncClient(base_url=gateway.http, headers={"authorization": f"Bearer {key}"}) as client:
            whole = await client.post("/v1/responses", json=body)
            streamed = await client.post("/v1/responses", json={**body, "stream": True})
    assert (whole.status_code, streamed.status_code) == (200, 200)
    reports = told_by(profile, name)
    told = [report for report in reports if isinstance(report, GatewayReported)]
    assert len(told) == len(reports)
    assert [report.state for report in told] == [*["running"] * (len(told) - 1), "stopping"]
    assert sum(report.accepted_requests for report in told) == 2
    assert sum(report.sent_events for report in told) == 1 + streamed.text.count("\nevent: ")
    assert (told[0].accepted_requests, told[-1].open_responses, told[-1].open_sockets) == (0, 0, 0)


async def test_the_command_line_shows_who_runs(
    stage: Stage, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("HEADRACE_BROKER", broker.profile.kind)
    worker = f"w-{secrets.token_hex(4)}"

    def shown() -> dict[str, list[str]]:
        assert run(["workers"]) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        return {row[0]: row[1:] for row in rows}

    async with running_worker(stage.settings(worker)):
        assert await comes_true(lambda: worker in shown())
        running = await asyncio.to_thread(shown)
    assert running["name"] == [
        "deployment",
        "model",
        "state",
        "tokens/s",
        "running",
        "waiting",
        "KV use",
        "last report",
    ]
    assert running[worker][:3] == [stage.deployment, f"{stage.deployment}@v1", "running"]
    assert running[worker][4:7] == ["0", "0", "-"]
    assert await comes_true(lambda: shown()[worker][2] == "stopped")
