from __future__ import annotations

from pathlib import Path

from infra.runtime.broker import BrokerChoice
from tests.brokers import running_broker, started_broker


def test_the_embedded_broker_is_taken_when_it_is_asked_for_whatever_else_there_is(tmp_path: Path) -> None:
    environment = {"HEADRACE_TEST_BROKER": "embedded", "HEADRACE_TEST_KAFKA": "one:9092", "KAFKA_HOME": "/opt/kafka"}

    with running_broker(tmp_path, environment) as broker:
        assert not broker.is_real
        assert broker.profile.kind == "embedded"


def test_a_broker_that_runs_already_goes_before_all_others(tmp_path: Path) -> None:
    with started_broker(BrokerChoice(), tmp_path) as launch:
        environment = {"HEADRACE_TEST_KAFKA": launch.bootstrap_servers, "KAFKA_HOME": "/opt/kafka"}
        with running_broker(tmp_path, environment) as broker:
            assert broker.bootstrap_servers == launch.bootstrap_servers
            assert broker.is_real
