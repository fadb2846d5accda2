"""Apache Kafka of a test's own, to be killed (SIGKILL) and started again on its log."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.runtime.broker import BrokerChoice, prepare_broker, wait_until_broker_answers
from infra.runtime.guard import guarded
from infra.runtime.ports import free_port
from tests.brokers import Broker
from tests.timing import within


class KillableKafka:
    """Use `killable_kafka`."""

    def __init__(self, kafka_home: str, directory: Path) -> None:
        self._choice = BrokerChoice(kafka_home=kafka_home, java_home=os.environ.get("JAVA_HOME"), port=free_port())
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.broker = Broker(f"127.0.0.1:{self._choice.port}", is_real=True)

    def start(self) -> None:
        """Until it answers, on the log that it had."""
        launch = prepare_broker(self._choice, self._directory)
        assert launch.command is not None
        with (self._directory / "broker.log").open("ab") as log:
            self._process = process = subprocess.Popen(
                guarded(launch.command.arguments, os.getpid()),
                cwd=launch.command.directory,
                env=dict(launch.command.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        wait_until_broker_answers(launch.bootstrap_servers, within(60), lambda: process.poll() is not None)

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def killable_kafka(kafka_home: str, directory: Path) -> Iterator[KillableKafka]:
    """Running for as long as the block does."""
    kafka = KillableKafka(kafka_home, directory)
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.kill()
