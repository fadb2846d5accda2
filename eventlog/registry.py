"""Tenants, keys, models and routes: a fold of the compacted control topics, the same in every part.

`Registry` is an immutable value. `apply` gives the next one; whoever holds an older one holds a consistent picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.api_keys import hash_api_key, key_id_of
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


@dataclass(frozen=True, slots=True)
class Registry:
    """What is known of tenants and models at one moment.

    tenants by name; keys by key id; models and adapters by pinned version (`name@version`); routes by alias;
    schemas by their id in the schema registry; published: fingerprints of schemas that the log holds.
    """

    tenants: Mapping[str, TenantRegistered] = field(default_factory=dict)
    keys: Mapping[str, ApiKeyIssued] = field(default_factory=dict)
    models: Mapping[str, ModelRegistered] = field(default_factory=dict)
    adapters: Mapping[str, AdapterRegistered] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    routes_revision: int = 0
    schemas: Mapping[int, SchemaRegistered] = field(default_factory=dict)
    published: frozenset[str] = frozenset()

    def apply(self, event: ControlEvent) -> Registry:
        """The registry after this event; an older route table than the one at hand changes nothing."""
        match event:
            case TenantRegistered():
                return replace(self, tenants={**self.tenants, event.tenant: event})
            case ApiKeyIssued():
                return replace(self, keys={**self.keys, event.key_id: event})
            case ApiKeyRevoked():
                return replace(self, keys={k: v for k, v in self.keys.items() if k != event.key_id})
            case ModelRegistered():
                return replace(self, models={**self.models, event.model_version: event})
            case AdapterRegistered():
                return replace(self, adapters={**self.adapters, event.adapter: event})
            case SchemaPublished():
                return replace(self, published=self.published | {event.fingerprint})
            case SchemaRegistered():
                return replace(self, schemas={**self.schemas, event.schema_id: event})
            case RouteTableChanged():
                if event.revision < self.routes_revision:
                    return self
                routes = {route.alias: route for route in event.routes}
                return replace(self, routes=routes, routes_revision=event.revision)

    @property
    def deployments(self) -> frozenset[str]:
        return frozenset(model.deployment for model in self.models.values())

    def tenant_for_key(self, secret: str) -> TenantRegistered | None:
        """The tenant for which an API key speaks, or None."""
        key_id = key_id_of(secret)
        issued = self.keys.get(key_id) if key_id else None
        # Comparing hashes of 160 random bits leaks nothing that helps to guess the key.
        if issued is None or issued.key_sha256 != hash_api_key(secret):
            return None
        return self.tenants.get(issued.tenant)

    def model_names(self) -> list[str]:
        """Every name of a model: aliases, then pinned versions."""
        return sorted(self.routes) + sorted(self.models)

    def adapter_names(self, tenant: str) -> list[str]:
        """Adapters that this tenant may ask for: everybody's and his own."""
        return sorted(name for name, adapter in self.adapters.items() if adapter.tenant in (None, tenant))
