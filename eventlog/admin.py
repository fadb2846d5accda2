"""Changing what exists: topics, tenants, keys, models, routes. What the command line and the admin API call.

Topics are made here, when a tenant or a deployment is registered, and never on a request's path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from eventlog.errors import AdapterRefused, DeliveryFailed, LogUnreachable, ModelRefused, TopicError
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from schemas.events import (
    AdapterRegistered,
    ApiKeyIssued,
    ApiKeyRevoked,
    ControlEvent,
    ModelRegistered,
    Route,
    RouteTableChanged,
    SchemaPublished,
    SchemaRegistered,
    TenantRegistered,
)
from schemas.names import check_deployment, check_tenant, split_model_version
from schemas.topics import (
    CONTROL_ADAPTERS,
    CONTROL_MODELS,
    CONTROL_ROUTES,
    CONTROL_SCHEMAS,
    CONTROL_TENANTS,
    TopicKind,
    Topics,
    TopicSpec,
)


class LogAdmin:
    """Blocking; each method returns when the broker has acknowledged."""

    def __init__(self, profile: BrokerProfile, topics: Topics, *, replication_factor: int = -1) -> None:
        self._profile = profile
        self._topics = topics
        # -1 is the broker's own default; the embedded broker has one copy of everything.
        self._replication_factor = 1 if profile.kind == "embedded" else replication_factor
        self._admin = AdminClient(profile.client("headrace-admin"))
        self._producer = EventProducer(profile, client_id="headrace-admin")

    def cluster_id(self, timeout_s: float = 10.0) -> str:
        """The broker's own name for the log. Raises LogUnreachable."""
        return str(self._metadata(timeout_s).cluster_id)

    @property
    def topics(self) -> Topics:
        """The shape of the topics that it makes."""
        return self._topics

    def topic_names(self, timeout_s: float = 10.0) -> set[str]:
        """Every topic that is there. Raises LogUnreachable."""
        return set(self._metadata(timeout_s).topics)

    def create_shared_topics(self) -> None:
        self.ensure(self._topics.shared())

    def ensure(self, specs: Iterable[TopicSpec], timeout_s: float = 30.0) -> None:
        """Make the topics that are not there. Raises TopicError and LogUnreachable."""
        existing = set(self._metadata(timeout_s).topics)
        new = [self._new_topic(spec) for spec in specs if spec.name not in existing]
        if not new:
            return
        for name, future in self._admin.create_topics(new, operation_timeout=timeout_s).items():
            try:
                future.result(timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise TopicError(f"topic {name} could not be created: {error.args[0].str()}") from error

    def register_tenant(self, event: TenantRegistered, registry: Registry) -> None:
        """Make the tenant's topics, then its record; work topics of deployments too that were registered meanwhile.

        Raises InvalidName.
        """
        check_tenant(event.tenant)
        self.ensure(self._topics.of_tenant(event.tenant, registry.deployments))
        self._write(CONTROL_TENANTS, event, event.tenant)
        self.ensure(self._topics.of_tenant(event.tenant, self._registry().deployments))

    def issue_key(self, event: ApiKeyIssued) -> None:
        self._write(CONTROL_TENANTS, event, f"{event.tenant}/{event.key_id}")

    def revoke_key(self, event: ApiKeyRevoked) -> None:
        self._write(CONTROL_TENANTS, event, f"{event.tenant}/{event.key_id}")

    def register_model(self, event: ModelRegistered, registry: Registry) -> None:
        """Make the deployment's work topics for every tenant, then the record; those of tenants too that were
        registered meanwhile.

        Raises InvalidName and ModelRefused.
        """
        split_model_version(event.model_version)
        if event.model_version in registry.adapters:
            raise ModelRefused(f"an adapter goes by the name {event.model_version!r}: choose another one")
        check_deployment(event.deployment)
        self._ensure_work_topics(event.deployment, registry)
        self._write(CONTROL_MODELS, event, event.model_version)
        self._ensure_work_topics(event.deployment, self._registry())

    def register_adapter(self, event: AdapterRegistered, registry: Registry) -> None:
        """A pinned adapter for a model version that is registered. Raises InvalidName and AdapterRefused.

        One that is registered anew gets a later time than before, whatever the clocks say: workers know registrations
        of one name apart by it.
        """
        split_model_version(event.adapter)
        split_model_version(event.model_version)
        if (reason := why_not_an_adapter(event, registry)) is not None:
            raise AdapterRefused(f"the adapter {event.adapter!r} can't be registered: {reason}")
        self._write(CONTROL_ADAPTERS, registered_later(event, registry), event.adapter)

    def publish_schemas(self, events: Iterable[SchemaPublished]) -> None:
        """From now on every part, of an older release too, reads events of these schemas."""
        self._write_all(CONTROL_SCHEMAS, [(f"{event.subject}/{event.fingerprint}", event) for event in events])

    def register_schemas(self, events: Iterable[SchemaRegistered]) -> None:
        """From now on every part knows these ids."""
        self._write_all(CONTROL_SCHEMAS, [(f"{event.subject}/{event.schema_id}", event) for event in events])

    def set_routes(self, routes: tuple[Route, ...], registry: Registry, *, now_us: int, reason: str) -> None:
        """Replace the whole route table."""
        event = RouteTableChanged(at_us=now_us, revision=registry.routes_revision + 1, routes=routes, reason=reason)
        self._write(CONTROL_ROUTES, event, "routes")

    def close(self) -> None:
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ensure_work_topics(self, deployment: str, registry: Registry) -> None:
        self.ensure(spec for tenant in registry.tenants for spec in self._topics.of_tenant(tenant, {deployment}))

    def _registry(self) -> Registry:
        """As it is now. A tenant and a model may be registered at the same moment, neither knowing of the other: each
        looks again behind its own record, and the later of the two finds the earlier one.
        """
        reader = RegistryReader(self._profile, client_id="headrace-admin")
        try:
            return reader.start()
        finally:
            reader.close()

    def _metadata(self, timeout_s: float) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            where = self._profile.bootstrap_servers
            raise LogUnreachable(f"no broker answers at {where}: {error.args[0].str()}") from error

    def _new_topic(self, spec: TopicSpec) -> NewTopic:
        config = (
            {"cleanup.policy": "compact"}
            if spec.retention_ms is None
            else {"cleanup.policy": "delete", "retention.ms": str(spec.retention_ms)}
        )
        if spec.max_batch_bytes is not None:
            config["max.message.bytes"] = str(spec.max_batch_bytes)
        return NewTopic(
            spec.name, num_partitions=spec.partitions, replication_factor=self._replication_factor, config=config
        )

    def _write(self, kind: TopicKind, event: ControlEvent, key: str) -> None:
        self._write_all(kind, [(key, event)])

    def _write_all(self, kind: TopicKind, events: Sequence[tuple[str, ControlEvent]]) -> None:
        failures: list[DeliveryFailed] = []
        for key, event in events:
            self._producer.send(
                kind.name,
                event,
                key=key,
                partition=0,
                on_delivery=lambda failure: failures.append(failure) if failure else None,
            )
        if self._producer.flush(30.0):
            raise LogUnreachable(f"{kind.name} was not acknowledged within 30 s")
        if failures:
            raise failures[0]


def registered_later(event: AdapterRegistered, registry: Registry) -> AdapterRegistered:
    """The event with a time behind that of the name's registration before, if there is one."""
    before = registry.adapters.get(event.adapter)
    return event if before is None else replace(event, at_us=max(event.at_us, before.at_us + 1))


def why_not_an_adapter(event: AdapterRegistered, registry: Registry) -> str | None:
    """What this registry holds against it, as a clause; None if nothing. Pure."""
    if event.model_version not in registry.models:
        known = ", ".join(sorted(registry.models)) or "none"
        return f"there is no model version {event.model_version!r}; there are: {known}"
    if event.adapter in registry.models:
        return "a model version goes by this name"
    known_adapter = registry.adapters.get(event.adapter)
    if known_adapter is not None and known_adapter.model_version != event.model_version:
        return f"it is one of {known_adapter.model_version}, and a pinned version does not change: choose the next one"
    if event.tenant is not None and event.tenant not in registry.tenants:
        return f"there is no tenant {event.tenant!r}: headrace tenants add {event.tenant}"
    return None
