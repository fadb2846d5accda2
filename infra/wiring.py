"""From settings to what eventlog and the runtime take."""

from __future__ import annotations

from dataclasses import replace

from eventlog.profile import BrokerProfile
from infra.errors import NothingRuns, SettingInvalid
from infra.runtime.broker import BrokerChoice
from infra.runtime.data_directory import DataDirectory
from infra.settings import Settings
from schemas.topics import Topics


def topics_of(settings: Settings) -> Topics:
    return Topics(
        requests=settings.requests_partitions,
        validated=settings.validated_partitions,
        work=settings.work_partitions,
        tokens=settings.tokens_partitions,
    )


def broker_choice(settings: Settings) -> BrokerChoice:
    """Which broker `headrace up` uses. Raises SettingInvalid where HEADRACE_BROKER asks for what there is not."""
    if settings.broker == "kafka" and not (settings.kafka_home or settings.kafka_bootstrap_servers):
        raise SettingInvalid(
            "HEADRACE_BROKER", "kafka", "KAFKA_HOME must name an unpacked Apache Kafka then, or choose embedded"
        )
    return BrokerChoice(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        kafka_home=None if settings.broker == "embedded" else settings.kafka_home,
        java_home=settings.java_home,
        port=settings.kafka_port,
    )


def connected(settings: Settings) -> Settings:
    """Settings that name a broker: those given, or what `headrace up` on the same data directory has announced.

    Raises NothingRuns.
    """
    if settings.kafka_bootstrap_servers:
        return settings
    running = DataDirectory(settings.data_dir).running()
    if running is None:
        raise NothingRuns(settings.data_dir)
    return replace(settings, kafka_bootstrap_servers=running.bootstrap_servers, broker=running.broker)


def broker_profile(settings: Settings) -> BrokerProfile:
    """How to talk to the broker. Raises NothingRuns if the settings name none."""
    if not settings.kafka_bootstrap_servers:
        raise NothingRuns(settings.data_dir)
    return BrokerProfile(
        settings.kafka_bootstrap_servers,
        "embedded" if settings.broker == "embedded" else "kafka",
        security=_security(settings),
    )


def _security(settings: Settings) -> dict[str, str]:
    values = {
        "security.protocol": settings.kafka_security_protocol,
        "sasl.mechanism": settings.kafka_sasl_mechanism,
        "sasl.username": settings.kafka_sasl_username,
        "sasl.password": settings.kafka_sasl_password,
        "ssl.ca.location": settings.kafka_ssl_ca_location,
    }
    return {name: str(value) for name, value in values.items() if value is not None}
