from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from infra.cli.demo import on_free_ports
from infra.errors import PortTaken, SettingInvalid
from infra.plan import Plan, about_of, launches_of, make_plan, prepared
from infra.runtime.broker import BrokerKind
from infra.runtime.data_directory import DataDirectory
from infra.runtime.ports import LOOPBACK
from infra.settings import Settings, load_settings

MODEL = Path("/models/smollm2")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    defaults, _ = load_settings({"HEADRACE_DATA_DIR": str(tmp_path / "data")})
    return replace(defaults, kafka_port=0, gateway_port=0, clickhouse_port=0)


def plan_of(settings: Settings) -> Plan:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    return make_plan(settings, DataDirectory(settings.data_dir), lambda _: MODEL)


def test_parts_start_behind_the_broker_and_stop_before_it(settings: Settings) -> None:
    launches = launches_of(plan_of(settings))

    assert [launch.spec.name for launch in launches] == ["broker", "sink", "streams", "worker", "gateway"]
    assert launches[0].spec.carries_dependants
    assert all(launch.spec.needs == ("broker",) for launch in launches[1:])


def test_with_a_broker_of_someone_elses_only_our_parts_are_started(settings: Settings) -> None:
    plan = plan_of(replace(settings, kafka_bootstrap_servers="one:9092"))

    assert plan.broker.kind is BrokerKind.EXTERNAL
    assert plan.settings.broker == "kafka"
    assert [launch.spec.name for launch in launches_of(plan)] == ["sink", "streams", "worker", "gateway"]


def test_each_model_has_a_worker_and_only_smollm2_is_fetched(settings: Settings) -> None:
    both = plan_of(replace(settings, model="smollm2,echo"))
    echo = plan_of(replace(settings, model="echo"))

    workers = [launch for launch in launches_of(both) if launch.spec.name.startswith("worker")]
    assert [launch.spec.name for launch in workers] == ["worker-smollm2", "worker-echo"]
    assert [launch.command().environment["HEADRACE_MODEL"] for launch in workers] == ["smollm2@v1", "echo@v1"]
    assert (both.smollm2, echo.smollm2) == (MODEL, None)


def test_parts_read_the_very_settings_of_the_plan_from_their_environment(settings: Settings) -> None:
    plan = plan_of(settings)
    (gateway,) = [launch for launch in launches_of(plan) if launch.spec.name == "gateway"]

    read, _ = load_settings(gateway.command().environment)

    assert read == plan.settings
    assert read.kafka_bootstrap_servers == plan.broker.bootstrap_servers
    assert read.broker == "embedded"
    assert read.gateway_port != 0


def test_every_part_has_something_to_say_when_it_is_ready_but_the_streams(settings: Settings) -> None:
    plan = plan_of(settings)

    assert {launch.spec.name for launch in launches_of(plan)} - set(about_of(plan)) == {"streams"}


def test_a_taken_port_stops_the_plan_and_leaves_the_directory_free(settings: Settings) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        taken = replace(settings, gateway_port=listener.getsockname()[1])

        with pytest.raises(PortTaken, match="HEADRACE_GATEWAY_PORT"), prepared(taken, lambda _: MODEL):
            raise AssertionError("planned")
    with prepared(settings, lambda _: MODEL) as plan:
        assert plan.directory.running() == plan.running


def test_an_unknown_model_is_refused_before_anything_is_fetched(settings: Settings) -> None:
    def never(_: Path) -> Path:
        raise AssertionError("fetched")

    with pytest.raises(SettingInvalid), prepared(replace(settings, model="gpt"), never):
        raise AssertionError("planned")


def test_a_demo_gives_way_on_ports_that_nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        chosen = replace(Settings(), kafka_port=taken)
        monkeypatch.setattr("infra.cli.demo.Settings", lambda: replace(Settings(), gateway_port=taken))

        settings = on_free_ports(replace(chosen, gateway_port=taken))

    assert settings.gateway_port == 0
    assert settings.kafka_port == taken
