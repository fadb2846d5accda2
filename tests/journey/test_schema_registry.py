"""A whole system in Confluent framing, whose schema registry is killed: requests go on, parts start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from schemas.topics import tokens_topic
from tests.brokers import Broker
from tests.journey.system import System, running_system
from tests.schema_registry import RunningRegistry, running_registry
from tests.timing import eventually, within

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def kill_parts(system: System, *parts: str) -> None:
    """And wait until `headrace up` has others that are ready."""
    for part in parts:
        (pid,) = _pids(system, part)
        os.kill(pid, signal.SIGKILL)
    for part in parts:
        eventually(partial(_ready_again, system, part), f"another {part} is ready", 60)


def _ready_again(system: System, part: str) -> bool:
    lines = (system.data_dir.parent / "up.log").read_text().splitlines()
    states = [line.split()[1] for line in lines if line.startswith(f"{part} ")]
    return "restarting" in states and states[-1] == "ready"


def _pids(system: System, part: str) -> list[int]:
    up = json.loads((system.data_dir / "running.json").read_text())["pid"]
    children = Path(f"/proc/{up}/task/{up}/children").read_text().split()
    return [int(pid) for pid in children if part in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]


def values(profile: BrokerProfile, topic: str) -> list[bytes]:
    with LogReader(profile, client_id="test") as reader:
        return [record.value for record in reader.read_to_end({(topic, partition): 0 for partition in range(4)})]


def test_a_registry_that_dies_stops_new_deployments_and_nothing_else(
    broker: Broker, schema_registry: RunningRegistry, tmp_path: Path
) -> None:
    url = schema_registry.address.url
    with running_system(broker, tmp_path, HEADRACE_SCHEMA_REGISTRY_URL=url) as system:
        key = system.add_tenant("acme")
        assert system.ask(key, "before") == "beforebe"

        schema_registry.kill()
        assert system.ask(key, "after") == "afteraft"
        kill_parts(system, "gateway", "streams", "worker", "sink")
        assert system.ask(system.add_tenant("bolt"), "again") == "againaga"
        refused = subprocess.run(
            [sys.executable, "-m", "infra.cli", "schemas", "register"],
            env=system.environment, capture_output=True, text=True, timeout=within(60), check=False,
        )  # fmt: skip
        counted = eventually(
            lambda: system.headrace("sql", "SELECT count() FROM headrace.requests").split()[1:] == ["3"] or None,
            "three requests are in ClickHouse",
            30,
        )

    assert counted
    assert refused.returncode == 1
    assert url in refused.stderr
    assert "check that it runs" in refused.stderr
    assert {value[:1] for tenant in ("acme", "bolt") for value in values(broker.profile, tokens_topic(tenant))} == {
        b"\0"
    }
