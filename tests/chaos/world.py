"""Everything that a request passes, but for the sink: a gateway, the streams, a tiny model in fp32, and workers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from eventlog.admin import LogAdmin
from eventlog.clock import now_us
from eventlog.reader import LogReader
from eventlog.registry import Registry
from gateway.settings import GatewaySettings
from gpu_consumers.settings import WorkerSettings
from schemas.api_keys import KEY_RANDOM_BYTES, new_api_key
from schemas.events import (
    ApiKeyIssued,
    GenerationStarted,
    ModelRegistered,
    RequestRouted,
    TenantRegistered,
    TokenLogEvent,
)
from schemas.token_log import TokenLog
from schemas.topics import Topics, tokens_topic, work_topic
from streams.settings import StreamsSettings
from tests.brokers import Broker
from tests.chaos.fleet import Fleet, running_fleet
from tests.contract.gateway_world import RunningGateway, running_gateway
from tests.contract.test_streams import running as running_streams
from tests.tiny_model import MAX_CONTEXT_TOKENS

TOPICS = Topics()
MODEL = "tiny@v1"
DEPLOYMENT = "tiny-v1"
SLOTS = 20
STEP_SECONDS = 0.04
"""A tiny model would have answered before anything could happen to it."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What the log holds of all requests. attempts: how many were started, over all of them."""

    orders: dict[str, RequestRouted]
    answers: dict[str, TokenLog]
    attempts: int


@dataclass(frozen=True, slots=True)
class World:
    """keys: of the tenants, in their order."""

    broker: Broker
    gateway: RunningGateway
    fleet: Fleet
    tenants: list[str]
    keys: list[str]

    def logged(self) -> Logged:
        orders: dict[str, RequestRouted] = {}
        answers: dict[str, TokenLog] = {}
        attempts = 0
        work = [work_topic(DEPLOYMENT, tenant) for tenant in self.tenants]
        tokens = [tokens_topic(tenant) for tenant in self.tenants]
        starts = {(topic, number): 0 for topic in work for number in range(TOPICS.work)}
        starts |= {(topic, number): 0 for topic in tokens for number in range(TOPICS.tokens)}
        with LogReader(self.broker.profile, client_id="chaos") as reader:
            for record in reader.read_to_end(starts):
                event = record.event()
                if isinstance(event, RequestRouted):
                    orders[event.request_id] = event
                elif isinstance(event, TokenLogEvent):
                    answers.setdefault(event.request_id, TokenLog()).apply(event)
                    attempts += isinstance(event, GenerationStarted)
        return Logged(orders, answers, attempts)


@asynccontextmanager
async def world(broker: Broker, model_directory: Path, data: Path, *, tenants: int) -> AsyncIterator[World]:
    """Without workers at first."""
    names = [f"chaos-{number}" for number in range(tenants)]
    with LogAdmin(broker.profile, TOPICS) as admin:
        admin.create_shared_topics()
        model = ModelRegistered(
            model_version=MODEL, at_us=now_us(), deployment=DEPLOYMENT, engine="torch", location=str(model_directory),
            tokenizer=str(model_directory), context_tokens=MAX_CONTEXT_TOKENS, default_max_output_tokens=64,
        )  # fmt: skip
        admin.register_model(model, Registry())
        keys = [_register(admin, name, Registry(models={MODEL: model})) for name in names]
    settings = GatewaySettings(profile=broker.profile, topics=TOPICS, gateway_id="chaos-gateway")

    def worker(name: str) -> WorkerSettings:
        return WorkerSettings(
            profile=broker.profile, deployment=DEPLOYMENT, worker_id=name, topics=TOPICS, dtype="float32", slots=SLOTS,
            max_step_tokens=64, threads=1, drain_seconds=2.5, telemetry_seconds=0.0,
        )  # fmt: skip

    with running_fleet(worker, STEP_SECONDS) as fleet, running_gateway(settings) as gateway:
        async with running_streams(StreamsSettings(broker.profile, TOPICS, data)):
            yield World(broker, gateway, fleet, names, keys)


def _register(admin: LogAdmin, name: str, registry: Registry) -> str:
    """A tenant whom quota does not hold back; its key."""
    tenant = TenantRegistered(
        tenant=name, at_us=now_us(), requests_per_minute=10**6, tokens_per_minute=10**9, max_concurrent_requests=10**4
    )
    key = new_api_key(secrets.token_bytes(KEY_RANDOM_BYTES))
    admin.register_tenant(tenant, registry)
    admin.issue_key(ApiKeyIssued(tenant=name, at_us=now_us(), key_id=key.key_id, key_sha256=key.sha256))
    return key.secret
