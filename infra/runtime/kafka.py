"""Apache Kafka on this machine: one node that is broker and controller (KRaft), reachable on loopback only."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path

from infra.errors import BrokerFailed, KafkaHomeInvalid
from infra.runtime.command import Command
from infra.runtime.data_directory import check_free_space
from infra.runtime.logs import last_lines
from infra.runtime.ports import LOOPBACK

# C1 only and the serial collector: ready in 1.3 s instead of 3-5 s. A class-data archive would save another 0.5 s
# but costs 2.3 s at the first stop, which has to fit into the grace of Ctrl-C.
_JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOG4J = """\
Configuration:
  status: warn
  Appenders:
    Console:
      name: OUT
      target: SYSTEM_OUT
      PatternLayout:
        pattern: "%d %p %c{1} %m%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: OUT
    Logger:
      - name: kafka.server.KafkaRaftServer
        level: INFO
"""


def check_kafka_home(kafka_home: str) -> Path:
    """The folder as a path. Raises KafkaHomeInvalid if Kafka's server jar is not in its libs."""
    home = Path(kafka_home).expanduser().absolute()
    if not any((home / "libs").glob("kafka-server-[0-9]*.jar")):
        raise KafkaHomeInvalid(kafka_home)
    return home


def server_properties(port: int, controller_port: int, log_directory: Path) -> str:
    """The node's configuration. Replication factors are 1: it stands alone."""
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{LOOPBACK}:{controller_port}
listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners=PLAINTEXT://{LOOPBACK}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={log_directory}
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=8
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
auto.create.topics.enable=false
log.cleaner.enable=true
"""


def prepare_kafka(java: Path, kafka_home: Path, directory: Path, port: int, controller_port: int) -> Command:
    """Write the configuration, format `directory` if it holds no log yet, and say how to start the node.

    Blocks for about a second where it formats. Raises DiskFull, BrokerFailed.
    """
    logs = directory / "log"
    logs.mkdir(parents=True, exist_ok=True)
    check_free_space(directory)
    properties = directory / "server.properties"
    properties.write_text(server_properties(port, controller_port, logs))
    log4j = directory / "log4j2.yaml"
    log4j.write_text(_LOG4J)
    start = (str(java), *_JVM_OPTIONS, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{kafka_home}/libs/*")
    if not (logs / "meta.properties").exists():
        # With `=`: an id may begin with a dash, and would be taken for an option.
        cluster_id = f"--cluster-id={_cluster_id()}"
        _format(Command((*start, "kafka.tools.StorageTool", "format", cluster_id, "-c", str(properties)), directory))
    return Command((*start, "kafka.Kafka", str(properties)), directory)


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _format(command: Command) -> None:
    log = command.directory / "format.log"
    with log.open("wb") as output:
        done = subprocess.run(
            command.arguments,
            cwd=command.directory,
            env=dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise BrokerFailed("Formatting Kafka's data folder", done.returncode, log, last_lines(log, 5))
