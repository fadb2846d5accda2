"""Events that say what exists: tenants, keys, models, adapters, routes, schemas. The registry is a fold of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TenantRegistered:
    """A tenant exists with these limits. The newest record of a tenant counts."""

    tenant: str
    at_us: int
    requests_per_minute: int
    tokens_per_minute: int
    max_concurrent_requests: int
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ApiKeyIssued:
    """A key speaks for a tenant. Only its hash is kept."""

    tenant: str
    at_us: int
    key_id: str
    key_sha256: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class ApiKeyRevoked:
    """The key no longer speaks for its tenant."""

    tenant: str
    at_us: int
    key_id: str


@dataclass(frozen=True, kw_only=True)
class ModelRegistered:
    """A pinned model version can be served."""

    model_version: str
    at_us: int
    deployment: str
    engine: str
    location: str
    tokenizer: str
    context_tokens: int
    default_max_output_tokens: int


@dataclass(frozen=True, kw_only=True)
class RouteTarget:
    """One version with its share."""

    model_version: str
    percent: float


@dataclass(frozen=True, kw_only=True)
class Route:
    """What an alias resolves to."""

    alias: str
    targets: tuple[RouteTarget, ...]


@dataclass(frozen=True, kw_only=True)
class RouteTableChanged:
    """The whole route table, applied at once."""

    at_us: int
    revision: int
    routes: tuple[Route, ...]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class AdapterRegistered:
    """A LoRA adapter can be served on a model version."""

    adapter: str
    at_us: int
    model_version: str
    location: str
    tenant: str | None = None


@dataclass(frozen=True, kw_only=True)
class SchemaPublished:
    """A release brought this schema of an event; from now on its fingerprint may stand before one."""

    subject: str
    at_us: int
    fingerprint: str
    avro: str


@dataclass(frozen=True, kw_only=True)
class SchemaRegistered:
    """The schema registry has a schema under this id; from now on it may stand before an event."""

    subject: str
    at_us: int
    schema_id: int
    version: int
    fingerprint: str
    avro: str = ""
