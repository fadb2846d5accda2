"""The registry is a fold: same events, same picture."""

from __future__ import annotations

from eventlog.registry import Registry
from schemas.api_keys import new_api_key
from schemas.events import (
    AdapterRegistered,
    ApiKeyIssued,
    ApiKeyRevoked,
    ModelRegistered,
    Route,
    RouteTableChanged,
    RouteTarget,
    TenantRegistered,
)

KEY = new_api_key(bytes(26))
ISSUED = ApiKeyIssued(tenant="acme", at_us=2, key_id=KEY.key_id, key_sha256=KEY.sha256)


def acme(requests_per_minute: int = 60) -> TenantRegistered:
    return TenantRegistered(
        tenant="acme", at_us=1, requests_per_minute=requests_per_minute, tokens_per_minute=1000,
        max_concurrent_requests=4,
    )  # fmt: skip


def routes(revision: int, alias: str) -> RouteTableChanged:
    target = RouteTarget(model_version="chat@v1", percent=100.0)
    return RouteTableChanged(at_us=1, revision=revision, routes=(Route(alias=alias, targets=(target,)),))


def test_a_key_speaks_for_its_tenant_until_it_is_revoked() -> None:
    registry = Registry().apply(acme()).apply(ISSUED)
    assert registry.tenant_for_key(KEY.secret) == acme()
    assert registry.tenant_for_key("hr_" + "0" * 12 + "_" + "1" * 40) is None
    assert registry.tenant_for_key("nonsense") is None
    revoked = registry.apply(ApiKeyRevoked(tenant="acme", at_us=3, key_id=KEY.key_id))
    assert revoked.tenant_for_key(KEY.secret) is None
    assert registry.tenant_for_key(KEY.secret) == acme(), "an older value stays as it was"


def test_the_newest_record_of_a_tenant_counts() -> None:
    registry = Registry().apply(acme()).apply(acme(requests_per_minute=5))
    assert registry.tenants["acme"].requests_per_minute == 5


def test_a_route_table_replaces_the_one_before_whole() -> None:
    registry = Registry().apply(routes(1, "chat")).apply(routes(2, "talk"))
    assert set(registry.routes) == {"talk"}
    assert registry.routes_revision == 2


def test_an_older_route_table_changes_nothing() -> None:
    registry = Registry().apply(routes(2, "talk"))
    assert registry.apply(routes(1, "chat")) is registry


def test_models_give_deployments_and_names() -> None:
    model = ModelRegistered(
        model_version="chat@v1", at_us=1, deployment="chat-v1", engine="echo", location="bytes", tokenizer="bytes",
        context_tokens=512, default_max_output_tokens=64,
    )  # fmt: skip
    registry = Registry().apply(model).apply(routes(1, "chat"))
    assert registry.deployments == {"chat-v1"}
    assert registry.model_names() == ["chat", "chat@v1"]


def test_an_adapter_is_its_tenants_or_everybodys() -> None:
    registry = Registry()
    for name, tenant in (("tone@v1", None), ("law@v1", "acme"), ("med@v1", "bolt")):
        registry = registry.apply(
            AdapterRegistered(adapter=name, at_us=1, model_version="chat@v1", location="/a", tenant=tenant)
        )
    assert registry.adapter_names("acme") == ["law@v1", "tone@v1"]
    assert registry.adapter_names("crux") == ["tone@v1"]
