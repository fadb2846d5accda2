"""The whole system as an operator runs it: `headrace up` on the broker at hand, and what the command line adds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.brokers import Broker
from tests.timing import eventually, within


@dataclass(slots=True)
class System:
    """A running system. `environment` is what a terminal beside it would have set."""

    environment: dict[str, str]
    data_dir: Path
    gateway_url: str
    clickhouse_url: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def headrace(self, *arguments: str) -> str:
        """Run a command to its end; its output. Fails the test when the command fails."""
        done = subprocess.run(
            [sys.executable, "-m", "infra.cli", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=within(60), check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"headrace {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def add_tenant(self, name: str, *options: str) -> str:
        """A tenant with one key; the key."""
        self.headrace("tenants", "add", name, *options)
        found = re.search(r"hr_[0-9a-f]{12}_[0-9a-f]{40}", self.headrace("keys", "add", name))
        assert found is not None
        return found[0]

    def ask(self, key: str, text: str) -> str:
        """The echo engine's answer of eight tokens, over HTTP."""
        response = httpx.post(
            f"{self.gateway_url}/v1/responses",
            headers={"Authorization": f"Bearer {key}"},
            json={"model": "echo", "input": text, "max_output_tokens": 8},
            timeout=within(60),
        )
        assert response.status_code == 200, response.text
        return str(response.json()["output"][0]["content"][0]["text"])

    def serve_model(self, version: str, location: Path, **settings: str) -> None:
        """Register a version, give it the alias of its name, and start a worker of its own for it."""
        self.headrace("models", "add", version, "--location", str(location), "--context-tokens", "512")
        self.headrace("routes", "set", version.partition("@")[0], version)
        with (self.data_dir / "logs" / "journey-worker.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "infra.cli", "worker"],
                env={**self.environment, "HEADRACE_MODEL": version, **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(worker)


@contextmanager
def running_system(broker: Broker, directory: Path, **settings: str) -> Iterator[System]:
    """`headrace up` against this broker, ready; stopped at the end of the block, which must take under 5 s."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "KAFKA_HOME"))}
    environment |= {
        "HEADRACE_DATA_DIR": str(directory / "data"),
        "HEADRACE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "HEADRACE_BROKER": "kafka" if broker.is_real else "embedded",
        "HEADRACE_GATEWAY_PORT": "0",
        "HEADRACE_CLICKHOUSE_PORT": "0",
        "HEADRACE_MODEL": "echo",
        **settings,
    }
    data_dir = directory / "data"
    output = (directory / "up.log").open("wb")
    up = subprocess.Popen(
        [sys.executable, "-m", "infra.cli", "up"], env=environment, stdout=output, stderr=subprocess.STDOUT
    )
    system = System(environment, data_dir, "", "")
    try:
        announced = eventually(lambda: _announced(data_dir, up), "headrace up announces itself", 60)
        system.gateway_url, system.clickhouse_url = announced["gateway_url"], announced["clickhouse_url"]
        eventually(lambda: _answers(f"{system.gateway_url}/readyz"), "the gateway is ready", 60)
        yield system
    finally:
        for process in [*system.processes, up]:
            process.send_signal(signal.SIGINT)
        for process in [*system.processes, up]:
            try:
                process.wait(within(5))  # the promise of Ctrl-C
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
        output.close()


def _announced(data_dir: Path, up: subprocess.Popen[bytes]) -> dict[str, str] | None:
    if up.poll() is not None:
        raise AssertionError(f"headrace up ended: {(data_dir.parent / 'up.log').read_text()}")
    file = data_dir / "running.json"
    return dict(json.loads(file.read_text())) if file.exists() else None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return int(response.status) == 200
    except OSError:
        return False
