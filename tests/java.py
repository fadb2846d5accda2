"""Java for tests: programs in one source file, with Avro's and Kafka's own libraries.

Avro for Java comes with a schema registry: it is in the folder `lib` of HEADRACE_TEST_SCHEMA_REGISTRY_HOME, or of
`schema-registry` beside KAFKA_HOME. Kafka's clients are in KAFKA_HOME. Without them, or without Java 17+, tests are
skipped; with HEADRACE_REQUIRE_JAVA=1 they fail.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from infra.errors import InfraError
from infra.runtime.java import find_java
from tests.timing import within

# Short runs: the second compiler would cost more than it gives.
_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java, and a class path for the programs that it runs."""

    java: Path
    jars: tuple[str, ...]

    def run(self, source: Path, *arguments: str, given: str = "") -> str:
        """Compile and run a program; what it prints. `given` is its standard input."""
        command = [str(self.java), *_JAVA_OPTIONS, "-cp", os.pathsep.join(self.jars), str(source), *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, encoding="utf-8", timeout=within(60), check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == 0, f"{source.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout


def java_with_avro(environment: Mapping[str, str] | None = None) -> Java:
    """Skips the test, or fails it, where there is none."""
    variables = os.environ if environment is None else environment
    home = variables.get("HEADRACE_TEST_SCHEMA_REGISTRY_HOME")
    if home is None and (kafka_home := variables.get("KAFKA_HOME")):
        home = str(Path(kafka_home).absolute().parent / "schema-registry")
    lib = Path(home, "lib") if home else None
    avro = sorted(lib.glob("*avro-1.*.jar")) if lib else []
    if lib is None or not avro:
        _is_missing("HEADRACE_TEST_SCHEMA_REGISTRY_HOME, whose lib has Avro for Java", variables)
    beside = ("*jackson-core-*.jar", "*jackson-databind-*.jar", "*jackson-annotations-*.jar", "*slf4j-api-*.jar")
    jars = [*avro, *(jar for pattern in beside for jar in sorted(lib.glob(pattern)))]
    try:
        return Java(find_java(variables.get("JAVA_HOME")), tuple(map(str, jars)))
    except InfraError as error:
        _is_missing(str(error), variables)


def java_with_kafka(environment: Mapping[str, str] | None = None) -> Java:
    """The same, with Kafka's clients."""
    variables = os.environ if environment is None else environment
    java = java_with_avro(variables)
    if not (kafka_home := variables.get("KAFKA_HOME")):
        _is_missing("KAFKA_HOME, for Kafka's clients for Java", variables)
    # Kafka brings what Avro needs, in versions of its own.
    return Java(java.java, (java.jars[0], f"{Path(kafka_home).absolute()}/libs/*"))


def _is_missing(what: str, variables: Mapping[str, str]) -> NoReturn:
    reason = f"needs {what}, and Java 17+"
    if variables.get("HEADRACE_REQUIRE_JAVA") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
