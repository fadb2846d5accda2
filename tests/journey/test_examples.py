"""The examples of docs/ run as they stand there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.journey.system import running_system
from tests.timing import within

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(120)
def test_a_service_with_nothing_but_the_schema_files_submits_and_reads(broker: Broker, tmp_path: Path) -> None:
    with running_system(broker, tmp_path) as system:
        tenant = json.loads((system.data_dir / "credentials.json").read_text())["tenant"]
        script = [sys.executable, str(ROOT / "docs/examples/foreign_service.py"), broker.bootstrap_servers, tenant]
        for model, expected in (("echo", "Hi there"), ("no-such-model", "RequestRejected: ")):
            done = subprocess.run(
                [*script, model, "Hi there", str(ROOT / "schemas/avro")],
                capture_output=True, text=True, timeout=within(40), check=True,
            )  # fmt: skip
            assert expected in done.stdout
