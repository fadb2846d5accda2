"""The broker of one machine: which of the three kinds it is, how to start it, and when it is ready.

| kind     | chosen when                                   | the log is kept |
|----------|-----------------------------------------------|-----------------|
| external | bootstrap servers are given                   | by its owner    |
| kafka    | KAFKA_HOME is given (and Java 17+ is there)   | in `directory`  |
| embedded | neither                                       | in memory       |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from infra.errors import BrokerUnreachable
from infra.runtime.command import Command
from infra.runtime.embedded import prepare_embedded
from infra.runtime.java import find_java
from infra.runtime.kafka import check_kafka_home, prepare_kafka
from infra.runtime.ports import LOOPBACK, claim_port, free_port

_ATTEMPT_SECONDS = 0.5


class BrokerKind(StrEnum):
    EXTERNAL = "external"
    KAFKA = "kafka"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    """What the settings say about the broker.

    port: of a broker that is started here; 0 takes any free one. port_setting is its name in messages.
    """

    bootstrap_servers: str | None = None
    kafka_home: str | None = None
    java_home: str | None = None
    port: int = 0
    port_setting: str = "HEADRACE_KAFKA_PORT"

    @property
    def kind(self) -> BrokerKind:
        if self.bootstrap_servers:
            return BrokerKind.EXTERNAL
        return BrokerKind.KAFKA if self.kafka_home else BrokerKind.EMBEDDED


@dataclass(frozen=True, slots=True)
class BrokerLaunch:
    """A broker to start (or, with no command, to use)."""

    kind: BrokerKind
    bootstrap_servers: str
    command: Command | None

    @property
    def keeps_log(self) -> bool:
        """Whether a restart of the broker finds the log again."""
        return self.kind is not BrokerKind.EMBEDDED


def prepare_broker(choice: BrokerChoice, directory: Path) -> BrokerLaunch:
    """Check everything that can be checked before a start, and lay out the broker's folder below `directory`.

    May block for a second or two. Raises the InfraError that says what is missing, and the way out.
    """
    if choice.bootstrap_servers:
        return BrokerLaunch(BrokerKind.EXTERNAL, choice.bootstrap_servers, None)
    port = claim_port(choice.port, choice.port_setting)
    bootstrap_servers = f"{LOOPBACK}:{port}"
    if choice.kafka_home:
        home, java = check_kafka_home(choice.kafka_home), find_java(choice.java_home)
        command = prepare_kafka(java, home, directory / "kafka", port, free_port())
        return BrokerLaunch(BrokerKind.KAFKA, bootstrap_servers, command)
    return BrokerLaunch(BrokerKind.EMBEDDED, bootstrap_servers, prepare_embedded(directory / "broker", port))


def wait_until_broker_answers(
    bootstrap_servers: str,
    timeout_seconds: float,
    give_up: Callable[[], bool] = lambda: False,
    security: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Return as soon as a metadata request is answered. Blocks; call it from a thread of an async program.

    `give_up` is asked twice a second (has the process ended? does the caller stop?). `security`: librdkafka's settings
    for a broker that wants TLS or a password. Raises BrokerUnreachable.
    """
    from confluent_kafka import KafkaException  # costs 50 ms, and `headrace --help` needs none of it
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # refused connections are what waiting looks like
            **security,
        }
    )
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0 and not give_up():
        try:
            admin.list_topics(timeout=min(left, _ATTEMPT_SECONDS))
        except KafkaException:
            continue
        return
    raise BrokerUnreachable(bootstrap_servers, math.ceil(timeout_seconds))
