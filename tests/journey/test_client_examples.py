"""The examples of clients/python run as they stand there, against the whole system."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.journey.system import System, running_system
from tests.timing import within

EXAMPLES = Path(__file__).resolve().parents[2] / "clients/python/examples"


@pytest.fixture(scope="module")
def system(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running_system(broker, tmp_path_factory.mktemp("system")) as running:
        yield running


def printed(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True, text=True, timeout=within(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def credentials(system: System) -> dict[str, str]:
    return dict(json.loads((system.data_dir / "credentials.json").read_text()))


def test_a_service_submits_and_reads(broker: Broker, system: System) -> None:
    servers, tenant = broker.bootstrap_servers, credentials(system)["tenant"]
    out = printed("submit_and_read.py", servers, tenant, "echo", "Hello there", "And you")
    assert "= 'Hello thereHello there" in out
    assert "= 'And youAnd you" in out
    assert out.count("(length)") == 2
    assert "! 404 model_not_found" in printed("submit_and_read.py", servers, tenant, "no-such-model", "Hello")


def test_an_answer_goes_on_over_another_socket(system: System) -> None:
    out = printed("stream_with_resume.py", system.gateway_url, credentials(system)["api_key"], "echo", "Hello there")
    text, _, end = out.partition("\n")
    assert text == ("Hello there" * 6)[:64]
    assert end == "incomplete: 64 tokens\n"


def test_many_at_once(broker: Broker, system: System) -> None:
    mine = credentials(system)
    out = printed(
        "many_at_once.py", broker.bootstrap_servers, mine["tenant"], system.gateway_url, mine["api_key"], "echo"
    )
    expected = [f"question {number}" * 4 for number in range(4)]
    assert out.splitlines() == [f"{way}: {text[:32]}" for way in ("kafka", "websocket") for text in expected]
