"""What the log of a fresh installation must hold before the parts start: topics, the demo tenant, the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventlog.admin import LogAdmin
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from eventlog.schema_registry_address import RegistryAddress
from infra.credentials import Credentials
from infra.schema_registry import needs_registration, publish_schemas, register_schemas
from schemas.events import ApiKeyIssued, ControlEvent, ModelRegistered, Route, RouteTarget, TenantRegistered
from schemas.names import split_model_version
from schemas.topics import Topics


def read_registry(profile: BrokerProfile, client_id: str) -> Registry:
    """What is registered now. Blocks. Raises LogUnreachable."""
    reader = RegistryReader(profile, client_id=client_id)
    try:
        return reader.start()
    finally:
        reader.close()


def seed_log(
    profile: BrokerProfile,
    topics: Topics,
    credentials: Credentials,
    models: Sequence[ModelRegistered],
    now_us: int,
    schema_registry: RegistryAddress | None = None,
) -> None:
    """Write what is missing, and nothing that is there: limits and routes that someone changed stay.

    The schema registry is asked only if a schema has no id in the log yet. Blocks until the broker has acknowledged.
    Raises EventLogError.
    """
    with LogAdmin(profile, topics) as admin:
        admin.create_shared_topics()
        registry = read_registry(profile, "headrace-seed")
        publish_schemas(admin, registry, now_us=now_us)
        if schema_registry is not None and needs_registration(registry):
            register_schemas(schema_registry, admin, registry, profile.codec, now_us=now_us)
        for model in models:
            known = registry.models.get(model.model_version)
            if known is None or replace(known, at_us=now_us) != model:
                admin.register_model(model, registry)
                registry = registry.apply(model)
        for event in missing_tenant_events(registry, credentials, now_us):
            if isinstance(event, TenantRegistered):
                admin.register_tenant(event, registry)
            elif isinstance(event, ApiKeyIssued):
                admin.issue_key(event)
            registry = registry.apply(event)
        routes = routes_with(registry, models)
        if routes is not None:
            admin.set_routes(routes, registry, now_us=now_us, reason="the built-in models have an alias each")


def missing_tenant_events(registry: Registry, credentials: Credentials, now_us: int) -> list[ControlEvent]:
    """What makes the tenant and its key known."""
    missing: list[ControlEvent] = []
    if credentials.tenant not in registry.tenants:
        missing.append(
            TenantRegistered(
                tenant=credentials.tenant,
                at_us=now_us,
                requests_per_minute=600,
                tokens_per_minute=200_000,
                max_concurrent_requests=64,
            )
        )
    if credentials.key_id not in registry.keys:
        missing.append(
            ApiKeyIssued(
                tenant=credentials.tenant,
                at_us=now_us,
                key_id=credentials.key_id,
                key_sha256=credentials.key_sha256,
                name="demo",
            )
        )
    return missing


def routes_with(registry: Registry, models: Sequence[ModelRegistered]) -> tuple[Route, ...] | None:
    """The route table with an alias for each model that has none; None if all have one."""
    routes = dict(registry.routes)
    for model in models:
        alias, _ = split_model_version(model.model_version)
        if alias not in routes:
            routes[alias] = Route(alias=alias, targets=(RouteTarget(model_version=model.model_version, percent=100.0),))
    return None if len(routes) == len(registry.routes) else tuple(routes.values())
