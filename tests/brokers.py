"""Brokers for tests: one for each file of tests, the first of these that there is.

1. HEADRACE_TEST_KAFKA=host:port: one that runs already
2. a Docker engine: Apache Kafka in a container (testcontainers)
3. KAFKA_HOME with Java 17+: Apache Kafka, started here
4. the embedded broker

HEADRACE_TEST_BROKER=embedded (what `make test` uses) goes straight to the last; =real refuses it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eventlog.profile import BrokerProfile
from infra.errors import BrokerFailed
from infra.runtime.broker import BrokerChoice, BrokerLaunch, prepare_broker, wait_until_broker_answers
from infra.runtime.guard import guarded
from infra.runtime.logs import last_lines

KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.0"  # the image family that testcontainers' start script is made for
_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. is_real: it is Apache Kafka, so claims about guarantees can be shown on it."""

    bootstrap_servers: str
    is_real: bool

    @property
    def profile(self) -> BrokerProfile:
        """What eventlog's clients take."""
        return BrokerProfile(self.bootstrap_servers, "kafka" if self.is_real else "embedded")


class NoRealBroker(Exception):
    """None of the ways to a real broker is there; the message is the reason for skipping."""


@contextmanager
def running_broker(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """The first broker that there is, in the order of this module's docstring, for as long as the block runs."""
    variables = os.environ if environment is None else environment
    if variables.get("HEADRACE_TEST_BROKER") == "embedded":
        with started_broker(BrokerChoice(), directory) as launch:
            yield Broker(launch.bootstrap_servers, is_real=False)
        return
    if address := variables.get("HEADRACE_TEST_KAFKA"):
        wait_until_broker_answers(address, _READY_SECONDS)
        yield Broker(address, is_real=True)
    elif _docker_answers():
        with _container() as address:
            yield Broker(address, is_real=True)
    elif kafka_home := variables.get("KAFKA_HOME"):
        choice = BrokerChoice(kafka_home=kafka_home, java_home=variables.get("JAVA_HOME"))
        with started_broker(choice, directory) as launch:
            yield Broker(launch.bootstrap_servers, is_real=True)
    elif variables.get("HEADRACE_TEST_BROKER") == "real":
        raise NoRealBroker("no real broker: set HEADRACE_TEST_KAFKA, start Docker, or set KAFKA_HOME (Java 17+)")
    else:
        with started_broker(BrokerChoice(), directory) as launch:
            yield Broker(launch.bootstrap_servers, is_real=False)


@contextmanager
def started_broker(choice: BrokerChoice, directory: Path) -> Iterator[BrokerLaunch]:
    """Start the chosen broker below `directory`, wait until it answers, and stop it at the end of the block."""
    launch = prepare_broker(choice, directory)
    if launch.command is None:
        wait_until_broker_answers(launch.bootstrap_servers, _READY_SECONDS)
        yield launch
        return
    log = directory / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            guarded(launch.command.arguments, os.getpid()),
            cwd=launch.command.directory,
            env=dict(launch.command.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    try:
        _wait_until_ready(process, launch, log)
        yield launch
    finally:
        # The embedded broker has nothing to save, and waits for clients that some test has left behind.
        _stop(process, signal.SIGTERM if launch.keeps_log else signal.SIGKILL)


def _wait_until_ready(process: subprocess.Popen[bytes], launch: BrokerLaunch, log: Path) -> None:
    wait_until_broker_answers(launch.bootstrap_servers, _READY_SECONDS, lambda: process.poll() is not None)
    if process.poll() is not None:
        raise BrokerFailed(f"The {launch.kind} broker", process.returncode, log, last_lines(log, 5))


def _stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _docker_answers() -> bool:
    """Cheaply: an engine's socket must be there and answer a ping within two seconds."""
    if not (os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists()):
        return False
    import docker  # type: ignore[import-untyped]
    from docker.errors import DockerException  # type: ignore[import-untyped]

    try:
        client = docker.from_env(timeout=2)
        try:
            client.ping()
        finally:
            client.close()
    except DockerException:
        return False
    return True


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer(KAFKA_IMAGE).with_kraft().with_env("KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS", "500")
    with container as kafka:
        address: str = kafka.get_bootstrap_server()
        wait_until_broker_answers(address, _READY_SECONDS)
        yield address
