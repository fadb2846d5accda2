from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.errors import NothingRuns, SettingInvalid
from infra.runtime.broker import BrokerKind
from infra.runtime.data_directory import DataDirectory, Running
from infra.settings import Settings
from infra.wiring import broker_choice, broker_profile, connected, topics_of


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (Settings(), BrokerKind.EMBEDDED),
        (Settings(kafka_home="/opt/kafka"), BrokerKind.KAFKA),
        (Settings(kafka_home="/opt/kafka", broker="embedded"), BrokerKind.EMBEDDED),
        (Settings(kafka_home="/opt/kafka", kafka_bootstrap_servers="one:9092"), BrokerKind.EXTERNAL),
    ],
)
def test_the_broker_is_chosen_from_the_settings(settings: Settings, kind: BrokerKind) -> None:
    assert broker_choice(settings).kind is kind


def test_asking_for_kafka_without_one_is_refused() -> None:
    with pytest.raises(SettingInvalid, match="KAFKA_HOME"):
        broker_choice(Settings(broker="kafka"))


def test_the_profile_carries_security_and_the_kind() -> None:
    plain = Settings(kafka_bootstrap_servers="one:9092")
    secured = replace(plain, kafka_security_protocol="sasl_ssl", kafka_sasl_username="u", kafka_sasl_password="p")

    assert broker_profile(replace(plain, broker="embedded")).kind == "embedded"
    assert broker_profile(plain).kind == "kafka"
    assert broker_profile(secured).security == {
        "security.protocol": "sasl_ssl",
        "sasl.username": "u",
        "sasl.password": "p",
    }


def test_partitions_come_from_the_settings() -> None:
    assert topics_of(replace(Settings(), tokens_partitions=12)).tokens == 12


def test_a_command_finds_the_broker_that_headrace_up_runs(tmp_path: Path) -> None:
    settings = replace(Settings(), data_dir=tmp_path)
    with pytest.raises(NothingRuns, match="headrace up"):
        connected(settings)

    directory = DataDirectory(tmp_path)
    with directory.held():
        directory.announce(Running(1, "127.0.0.1:19092", "embedded", "http://127.0.0.1:8080", None))
        found = connected(settings)

    assert (found.kafka_bootstrap_servers, found.broker) == ("127.0.0.1:19092", "embedded")
    assert connected(replace(settings, kafka_bootstrap_servers="one:9092")).broker == "auto"
