"""Settings that guarantees lean on."""

from __future__ import annotations

from eventlog.profile import BrokerProfile


def test_producers_are_idempotent_and_wait_for_all_replicas() -> None:
    for kind in ("kafka", "embedded"):
        settings = BrokerProfile("b:1", kind).producer("p")
        assert settings["enable.idempotence"] is True
        assert settings["acks"] == "all"


def test_consumers_never_commit_on_their_own() -> None:
    settings = BrokerProfile("b:1").consumer("c", group_id="g")
    assert settings["enable.auto.commit"] is False
    assert settings["enable.auto.offset.store"] is False
    assert settings["auto.offset.reset"] == "earliest"
    assert settings["group.id"] == "g"


def test_the_embedded_broker_is_asked_with_a_short_wait() -> None:
    assert BrokerProfile("b:1", "embedded").consumer("c")["fetch.wait.max.ms"] == 5
    assert BrokerProfile("b:1", "kafka").consumer("c")["fetch.wait.max.ms"] == 500


def test_security_settings_reach_every_client() -> None:
    profile = BrokerProfile("b:1", security={"security.protocol": "SASL_SSL"})
    for settings in (profile.client("c"), profile.producer("c"), profile.consumer("c")):
        assert settings["security.protocol"] == "SASL_SSL"
