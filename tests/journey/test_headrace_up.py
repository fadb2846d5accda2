"""`headrace up` as its user has it: real processes, the echo engine, the embedded broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.timing import within

pytestmark = pytest.mark.slow
EMBEDDED = {
    "HEADRACE_MODEL": "echo",
    "HEADRACE_ECHO_TOKENS_PER_SECOND": "2000",
    "HEADRACE_KAFKA_PORT": "0",
    "HEADRACE_GATEWAY_PORT": "0",
    "HEADRACE_CLICKHOUSE_PORT": "0",
    "KAFKA_HOME": "",
}


class Up:
    """A running `headrace up`, and every line that it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line.rstrip())
                self._said.notify_all()

    def until(self, pattern: str, count: int = 1) -> None:
        """Wait until so many lines match."""
        with self._said:
            found = self._said.wait_for(
                lambda: sum(bool(re.search(pattern, line)) for line in self.lines) >= count, within(90)
            )
        assert found, f"no line with {pattern!r} in {self.lines}"

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(within(20))
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, **EMBEDDED, "HEADRACE_DATA_DIR": str(tmp_path / "data")}


@contextmanager
def headrace_up(environment: dict[str, str]) -> Iterator[Up]:
    command = [sys.executable, "-m", "infra.cli", "up"]
    up = Up(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.process.kill()
            up.process.wait()


def headrace(environment: dict[str, str], *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.cli", *arguments],
        env=environment, input=typed, capture_output=True, text=True, check=False, timeout=within(60),
    )  # fmt: skip


def part_pids(up: Up, part: str) -> list[int]:
    """Children of `headrace up` whose command is this part."""
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if part in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]


def test_a_person_starts_it_talks_to_it_loses_a_part_asks_sql_and_stops_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with headrace_up(environment) as up:
        up.until("^Ready")
        first = headrace(environment, "chat", "--model", "echo", typed="hello\n/quit\n")
        second_up = headrace(environment, "up")
        (gateway,) = part_pids(up, "gateway")
        os.kill(gateway, signal.SIGKILL)
        up.until(r"^gateway +restarting +killed by SIGKILL")
        up.until(r"^gateway +ready", count=2)
        second = headrace(environment, "chat", "--model", "echo", typed="again\n/quit\n")
        models = headrace(environment, "models", "list")
        status = up.stop()
    counted = headrace(environment, "sql", "SELECT count() FROM headrace.requests WHERE tenant = 'demo'")

    assert first.stdout.startswith("> hellohello")
    assert second.stdout.startswith("> againagain")
    assert (second_up.returncode, "uses the data directory" in second_up.stderr) == (1, True)
    assert "echo@v1" in models.stdout
    assert status == 0
    assert up.lines[-1] == "broker       stopped"
    assert counted.stdout.split() == ["count()", "2"]
    assert json.loads((tmp_path / "data" / "credentials.json").read_text())["tenant"] == "demo"


def test_a_broker_that_loses_its_log_brings_everything_back(environment: dict[str, str]) -> None:
    with headrace_up(environment) as up:
        up.until("^Ready")
        (broker,) = part_pids(up, "broker")
        os.kill(broker, signal.SIGKILL)
        for part in ("broker", "sink", "streams", "worker", "gateway"):
            up.until(rf"^{part} +ready", count=2)
        answer = headrace(environment, "chat", "--model", "echo", typed="hello\n/quit\n")
        status = up.stop()

    assert answer.stdout.startswith("> hellohello")
    assert status == 0
