from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventlog.schema_registry_address import RegistryAddress
from infra.errors import NothingRuns, SettingInvalid
from infra.runtime.broker import BrokerKind
from infra.runtime.data_directory import DataDirectory, Running
from infra.settings import Settings
from infra.wiring import broker_choice, broker_profile, connected, framing_of, schema_registry_of, topics_of


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


@pytest.mark.parametrize(
    ("framing", "url", "chosen"),
    [
        (None, None, "single-object"),
        (None, "http://registry:8081", "confluent"),
        ("single-object", "http://registry:8081", "single-object"),
        ("confluent", None, "confluent"),
    ],
)
def test_the_framing_is_confluents_where_there_is_a_schema_registry_unless_the_settings_say_otherwise(
    framing: str | None, url: str | None, chosen: str
) -> None:
    settings = Settings(kafka_bootstrap_servers="one:9092", framing=framing, schema_registry_url=url)

    assert framing_of(settings) == chosen
    assert broker_profile(settings).codec.framing == chosen


def test_the_schema_registry_is_asked_as_the_settings_say(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.touch()
    settings = Settings(
        schema_registry_url="https://registry", schema_registry_username="key", schema_registry_password="secret",
        schema_registry_ca_location=authorities,
    )  # fmt: skip

    assert schema_registry_of(settings) == RegistryAddress("https://registry", "key", "secret", None, authorities)
    assert schema_registry_of(Settings()) is None


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"schema_registry_ca_location": Path("/nowhere/ca.pem")}, "no such file"),
        ({"schema_registry_token": "t", "schema_registry_username": "u"}, "only one"),
    ],
)
def test_a_schema_registry_that_can_not_be_asked_so_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingInvalid, match=problem):
        schema_registry_of(replace(Settings(schema_registry_url="https://registry"), **wrong))
