from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from infra.errors import SettingInvalid
from infra.settings import Settings, load_settings, settings_table, variable_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "settings.md"


def load(**variables: str) -> Settings:
    settings, warnings = load_settings(variables)
    assert warnings == []
    return settings


def test_without_variables_everything_has_its_default_and_paths_are_absolute() -> None:
    settings = load()

    assert settings.data_dir == Path.cwd() / ".headrace"
    assert settings.cache_dir == Path.home() / ".cache" / "headrace"
    assert settings.gateway_port == 8080
    assert settings.kafka_bootstrap_servers is None


def test_variables_are_read_and_parsed() -> None:
    settings = load(
        HEADRACE_KAFKA_BOOTSTRAP_SERVERS="one:9092, two:9092",
        HEADRACE_DATA_DIR="~/data",
        HEADRACE_SLOTS="32",
        HEADRACE_ECHO_TOKENS_PER_SECOND="12.5",
        HEADRACE_CLICKHOUSE_DSN="https://user:secret@house:8443/headrace",
        KAFKA_HOME="/opt/kafka",
    )

    assert settings.kafka_bootstrap_servers == "one:9092,two:9092"
    assert settings.data_dir == Path.home() / "data"
    assert settings.slots == 32
    assert settings.echo_tokens_per_second == 12.5
    assert settings.kafka_home == "/opt/kafka"


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load(HEADRACE_SLOTS="", KAFKA_HOME="") == load()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("HEADRACE_GATEWAY_PORT", "99999", "a whole number from 0 to 65535"),
        ("HEADRACE_GATEWAY_PORT", "-1", "a whole number from 0 to 65535"),
        ("HEADRACE_SLOTS", "0", "a whole number from 1 to 1024"),
        ("HEADRACE_SLOTS", "ten", "a whole number from 1 to 1024"),
        ("HEADRACE_ECHO_TOKENS_PER_SECOND", "nan", "a number from 0.1 to 1e+06"),
        ("HEADRACE_ECHO_TOKENS_PER_SECOND", "fast", "a number from 0.1 to 1e+06"),
        ("HEADRACE_BROKER", "rabbit", "one of auto, kafka, embedded"),
        ("HEADRACE_LOG_LEVEL", "INFO", "one of debug, info, warning, error"),
        ("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", "localhost", "host:port"),
        ("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", "localhost:0", "host:port"),
        ("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", "one:1,,two:2", "host:port"),
        ("HEADRACE_SCHEMA_REGISTRY_URL", "registry:8081", "http:// or https://"),
        ("HEADRACE_FRAMING", "Confluent", "one of single-object, confluent"),
        ("HEADRACE_GATEWAY_URL", "localhost:8080", "http:// or https://"),
        ("HEADRACE_GATEWAY_URL", "http://[::1", "http:// or https://"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_value_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        load(**{name: value})

    assert name in str(refused.value)
    assert repr(value) in str(refused.value)
    assert allowed in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_CLICKHOUSE_DSN", "ftp://user:hunter2@house"),
        ("HEADRACE_SCHEMA_REGISTRY_URL", "https://user:hunter2@registry"),
    ],
)
def test_a_bad_secret_is_not_repeated(name: str, value: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        load(**{name: value})

    assert "hunter2" not in str(refused.value)


def test_an_unknown_variable_is_a_warning_that_names_the_nearest() -> None:
    _, warnings = load_settings({"HEADRACE_GATEWAY_PRT": "1", "HEADRACE_QQQ": "1", "HEADRACE_TEST_BROKER": "embedded"})

    assert warnings == [
        "HEADRACE_GATEWAY_PRT is no setting and changes nothing: did you mean HEADRACE_GATEWAY_PORT?",
        "HEADRACE_QQQ is no setting and changes nothing: docs/settings.md lists all of them.",
    ]


def test_settings_survive_the_way_through_a_childs_environment() -> None:
    settings = load(HEADRACE_KAFKA_BOOTSTRAP_SERVERS="one:9092", HEADRACE_SLOTS="3", HEADRACE_MODEL="echo")

    assert load(**settings.environment()) == settings


def test_every_default_is_a_value_that_its_variable_could_have() -> None:
    defaults = load()

    assert load(**defaults.environment()) == defaults


def test_the_document_lists_every_setting_as_the_code_has_it() -> None:
    """After a change: `headrace settings --markdown` prints the table."""
    assert settings_table() in DOCUMENT.read_text()


def test_every_variable_is_ours_or_one_that_kafka_and_java_have_made_known() -> None:
    foreign = [variable_of(f) for f in fields(Settings) if not variable_of(f).startswith("HEADRACE_")]

    assert foreign == ["KAFKA_HOME", "JAVA_HOME"]
