"""Services that have nothing of ours but the .avsc files submit requests and read answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.java import java_with_kafka
from tests.journey.system import System, running_system
from tests.timing import within

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs/examples"
AVRO = ROOT / "schemas/avro"
TENANT = "foreign"
OUTPUT_TOKENS = 64  # what the example asks for; the echo engine's tokens are bytes


@pytest.fixture(scope="module")
def system(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running_system(broker, tmp_path_factory.mktemp("system"), HEADRACE_ECHO_TOKENS_PER_SECOND="2000") as system:
        system.headrace("tenants", "add", TENANT, "--concurrent", "200")
        yield system


def run_foreign(*arguments: str | Path, directory: Path) -> str:
    """Run a Python program in a place where nothing of ours is; its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=directory, env={**environment, "PYTHONPATH": str(EXAMPLES)},
        capture_output=True, text=True, timeout=within(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("system")
def test_the_example_of_the_documents_prints_an_answer_and_a_refusal(broker: Broker, tmp_path: Path) -> None:
    example = (EXAMPLES / "foreign_service.py", broker.bootstrap_servers, TENANT)

    answered = run_foreign(*example, "echo", "Hi there. ", AVRO, directory=tmp_path)
    refused = run_foreign(*example, "no-such-model", "Hi there", AVRO, directory=tmp_path)

    assert answered == f"{('Hi there. ' * OUTPUT_TOKENS)[:OUTPUT_TOKENS]}\nGenerationFinished: length\n"
    assert refused.startswith("\nRequestRejected: 404 model_not_found: ")


def releases() -> list[Path]:
    return sorted(path for path in (ROOT / "schemas/released").iterdir() if path.is_dir())


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("written_with", [AVRO, *releases()], ids=lambda path: path.name)
def test_a_service_that_knows_only_schemas_and_topics_gets_100_answers_to_100_requests(
    broker: Broker, tmp_path: Path, written_with: Path
) -> None:
    script = ROOT / "tests/foreign_hundred.py"

    output = run_foreign(script, broker.bootstrap_servers, TENANT, "100", written_with, AVRO, directory=tmp_path)

    got: dict[str, Any] = json.loads(output)
    assert_100_answers(got["answers"])
    of_ours = [file for file in got["modules"] if Path(file).is_relative_to(ROOT) and ".venv" not in file]
    assert sorted(of_ours) == [str(EXAMPLES / "foreign_service.py"), str(script)]


def assert_100_answers(answers: list[dict[str, str]]) -> None:
    """Each has the text of its own prompt, and the end that it asked for."""
    kinds: Counter[str] = Counter()
    for answer in answers:
        whole = (answer["prompt"] * OUTPUT_TOKENS)[:OUTPUT_TOKENS]
        number = int(re.findall(r"\d+", answer["prompt"])[0])
        if number % 10 == 3:
            assert (answer["text"], answer["end"].partition(": ")[0]) == ("", "RequestRejected")
        elif number % 10 == 7:
            assert answer["end"] in {"GenerationFinished: cancelled", "GenerationFinished: length"}
            assert whole.startswith(answer["text"])
        else:
            assert (answer["text"], answer["end"]) == (whole, "GenerationFinished: length")
        kinds[answer["end"].partition(": ")[0]] += 1
    assert kinds == {"GenerationFinished": 90, "RequestRejected": 10}


@pytest.mark.integration  # the embedded broker does not speak the protocol versions of Kafka's clients for Java
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("system")
def test_a_java_service_gets_100_answers_to_100_requests(broker: Broker) -> None:
    java = java_with_kafka()
    folders = ":".join(map(str, [*releases()[-1:], AVRO]))
    prompts = ["größe 🌊 ", *(f"request {number} " for number in range(1, 100))]

    output = java.run(
        EXAMPLES / "java/ForeignService.java", broker.bootstrap_servers, TENANT, "echo", folders, *prompts
    )

    answers = dict(line.split("\t", 1) for line in output.splitlines())
    assert set(answers) == set(prompts)
    for prompt, answer in answers.items():
        whole = (prompt.encode() * OUTPUT_TOKENS)[:OUTPUT_TOKENS].decode(errors="ignore")
        assert answer == f"{whole}\tGenerationFinished: length"
