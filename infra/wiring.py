"""From settings to what eventlog and the runtime take."""

from __future__ import annotations

from dataclasses import replace

from eventlog.profile import BrokerProfile
from eventlog.schema_registry_address import RegistryAddress
from infra.errors import NothingRuns, SettingInvalid
from infra.runtime.broker import BrokerChoice
from infra.runtime.data_directory import DataDirectory
from infra.settings import Settings
from schemas.codec import Codec, Framing
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
        codec=codec_of(settings),
    )


def codec_of(settings: Settings) -> Codec:
    """Writes what the settings say; reads both, and asks the schema registry for ids that nobody has told it."""
    address, framing = schema_registry_of(settings), framing_of(settings)
    if address is None:
        return Codec(framing)
    # Only here: most have no schema registry, and an HTTP client takes a fifth of a second to import.
    from eventlog.schema_lookup import SchemaLookup
    from eventlog.schema_registry import SchemaRegistry

    return Codec(framing, lookup=SchemaLookup(SchemaRegistry(address).schema))


def framing_of(settings: Settings) -> Framing:
    confluent = settings.framing == "confluent" or (settings.framing is None and settings.schema_registry_url)
    return "confluent" if confluent else "single-object"


def schema_registry_of(settings: Settings) -> RegistryAddress | None:
    """The schema registry, if there is one. Raises SettingInvalid for what it can't be asked with."""
    if settings.schema_registry_url is None:
        return None
    ca_location = settings.schema_registry_ca_location
    if ca_location is not None and not ca_location.is_file():
        raise SettingInvalid("HEADRACE_SCHEMA_REGISTRY_CA_LOCATION", str(ca_location), "there is no such file")
    if settings.schema_registry_token is not None and settings.schema_registry_username is not None:
        raise SettingInvalid(
            "HEADRACE_SCHEMA_REGISTRY_TOKEN", "***", "HEADRACE_SCHEMA_REGISTRY_USERNAME is set too; only one can be"
        )
    return RegistryAddress(
        settings.schema_registry_url,
        settings.schema_registry_username,
        settings.schema_registry_password,
        settings.schema_registry_token,
        ca_location,
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
