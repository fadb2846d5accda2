"""A fresh log gets what the parts need, and a log that has it stays as it is."""

from __future__ import annotations

import secrets

from confluent_kafka.admin import AdminClient

from eventlog.admin import LogAdmin
from eventlog.clock import now_us
from infra.credentials import Credentials
from infra.seed import read_registry, seed_log
from schemas.api_keys import KEY_RANDOM_BYTES, new_api_key
from schemas.events import ModelRegistered, TenantRegistered
from schemas.topics import Topics, work_topic
from tests.brokers import Broker
from tests.timing import within


def test_the_seed_is_written_once_and_keeps_what_someone_changed(broker: Broker, tenant_name: str) -> None:
    profile, topics = broker.profile, Topics()
    credentials = Credentials(tenant_name, new_api_key(secrets.token_bytes(KEY_RANDOM_BYTES)).secret)
    name = f"m-{tenant_name}"
    model = ModelRegistered(
        model_version=f"{name}@v1", at_us=now_us(), deployment=f"d-{tenant_name}", engine="echo", location="echo",
        tokenizer="bytes", context_tokens=100, default_max_output_tokens=10,
    )  # fmt: skip

    seed_log(profile, topics, credentials, [model], now_us())
    first = read_registry(profile, "test")
    with LogAdmin(profile, topics) as admin:
        changed = TenantRegistered(
            tenant=tenant_name, at_us=now_us(), requests_per_minute=1, tokens_per_minute=2, max_concurrent_requests=3
        )
        admin.register_tenant(changed, first)
    seed_log(profile, topics, credentials, [model], now_us())
    registry = read_registry(profile, "test")

    assert registry.routes[name].targets[0].model_version == f"{name}@v1"
    assert registry.models[f"{name}@v1"] == model
    assert registry.tenants[tenant_name] == changed
    assert registry.tenant_for_key(credentials.api_key) == changed
    assert registry.routes_revision == first.routes_revision
    existing = AdminClient(profile.client("test")).list_topics(timeout=within(10)).topics
    assert work_topic(model.deployment, tenant_name) in existing
