"""From settings to each part as a service. Each part's code is imported when that part is asked for, and no other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from eventlog.registry_reader import RegistryReader
from infra.errors import ModelUnknown, SchemaIdsMissing, SettingInvalid
from infra.runtime.data_directory import DataDirectory
from infra.runtime.part import Serve
from infra.runtime.ports import claim_port
from infra.seed import read_registry
from infra.settings import Settings
from infra.wiring import broker_profile, connected, topics_of

if TYPE_CHECKING:
    from gpu_consumers.settings import WorkerSettings


def instance_name(part: str) -> str:
    """A name that no other process of the cluster has."""
    return f"{part}-{socket.gethostname()}-{os.getpid()}"


def part_profile(settings: Settings) -> BrokerProfile:
    """The broker as a part needs it: in Confluent framing it must know the schema ids of all that it may write.

    They come from the log; the schema registry is not asked. Raises NothingRuns, LogUnreachable, SchemaIdsMissing.
    """
    profile = broker_profile(settings)
    if profile.codec.framing == "confluent":
        read_registry(profile, "headrace-schema-ids")
        if missing := profile.codec.missing_ids():
            raise SchemaIdsMissing(missing)
    return profile


def gateway_service(settings: Settings) -> Serve:
    """Raises NothingRuns, LogUnreachable, SchemaIdsMissing, PortTaken."""
    from gateway.service import run
    from gateway.settings import GatewaySettings

    settings = connected(settings)
    service_settings = GatewaySettings(
        profile=part_profile(settings),
        topics=topics_of(settings),
        host=settings.gateway_host,
        port=claim_port(settings.gateway_port, "HEADRACE_GATEWAY_PORT", settings.gateway_host),
        gateway_id=instance_name("gateway"),
        telemetry_seconds=settings.telemetry_seconds,
    )

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        await run(service_settings, stop=stop, ready=ready)

    return serve


def streams_service(settings: Settings) -> Serve:
    """Raises NothingRuns, LogUnreachable, SchemaIdsMissing."""
    from streams.service import run
    from streams.settings import StreamsSettings

    settings = connected(settings)
    data_dir = settings.data_dir / "streams"
    data_dir.mkdir(parents=True, exist_ok=True)
    service_settings = StreamsSettings(
        profile=part_profile(settings),
        topics=topics_of(settings),
        data_dir=data_dir,
        metrics_port=settings.streams_metrics_port,
    )

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        await run(service_settings, stop=stop, ready=ready)

    return serve


def worker_service(settings: Settings) -> Serve:
    """Raises NothingRuns, LogUnreachable, SchemaIdsMissing, ModelUnknown."""
    from gpu_consumers.service import run

    settings = connected(settings)
    profile = part_profile(settings)
    deployment = deployment_of(settings.model, read_registry(profile, "headrace-worker"))
    service_settings = worker_settings(settings, profile, deployment)

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        await run(service_settings, stop=stop, ready=ready)

    return serve


def worker_settings(settings: Settings, profile: BrokerProfile, deployment: str) -> WorkerSettings:
    """What a worker of this deployment is told. Raises SettingInvalid."""
    from gpu_consumers.settings import WorkerSettings

    if settings.max_step_tokens is not None and settings.max_step_tokens < settings.slots:
        allowed = f"it must be at least HEADRACE_SLOTS, which is {settings.slots}: every sequence decodes in every step"
        raise SettingInvalid("HEADRACE_MAX_STEP_TOKENS", str(settings.max_step_tokens), allowed)
    return WorkerSettings(
        profile=profile,
        topics=topics_of(settings),
        deployment=deployment,
        worker_id=instance_name("worker"),
        device=settings.device,
        dtype=settings.dtype,
        quantization=settings.quantization,
        slots=settings.slots,
        max_step_tokens=settings.max_step_tokens,
        threads=settings.threads,
        kernels_dir=settings.cache_dir / "kernels",
        kv_cache_bytes=None if settings.kv_cache_mib is None else settings.kv_cache_mib << 20,
        prefix_cache_bytes=settings.prefix_cache_mib << 20,
        tensor_parallel=settings.tensor_parallel,
        adapter_places=settings.adapter_places,
        adapter_max_rank=settings.adapter_max_rank,
        echo_tokens_per_second=settings.echo_tokens_per_second,
        metrics_port=settings.worker_metrics_port,
        telemetry_seconds=settings.telemetry_seconds,
        throughput_seconds=settings.throughput_seconds,
        drain_seconds=settings.drain_seconds,
        spot_notice_file=settings.spot_notice_file,
    )


def deployment_of(model: str, registry: Registry) -> str:
    """The deployment of a pinned version, of the version that an alias resolves to, or the one of this very name.

    Raises ModelUnknown.
    """
    if model in registry.deployments:
        return model
    route = registry.routes.get(model)
    version = route.targets[0].model_version if route is not None else model
    registered = registry.models.get(version)
    if registered is None:
        raise ModelUnknown(model, registry.model_names())
    return registered.deployment


def sink_service(settings: Settings) -> Serve:
    """Raises NothingRuns, LogUnreachable, SchemaIdsMissing."""
    from infra.clickhouse.interface import HttpInterface
    from infra.clickhouse.schema import load_migrations
    from streams.sink.clickhouse import ClickHouseServer, EmbeddedClickHouse
    from streams.sink.service import run
    from streams.sink.settings import SinkSettings

    settings = connected(settings)
    profile = part_profile(settings)
    service_settings = SinkSettings(
        profile=profile,
        clickhouse=ClickHouseServer(settings.clickhouse_dsn)
        if settings.clickhouse_dsn
        else EmbeddedClickHouse(DataDirectory(settings.data_dir).clickhouse),
        migrations=load_migrations(),
        read_interface=HttpInterface(port=settings.clickhouse_port),
        metrics_port=settings.sink_metrics_port,
    )

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        # The other parts follow the registry anyway, the sink for nothing but the schemas that are new in it.
        schemas = RegistryReader(profile, client_id="headrace-sink")
        try:
            await asyncio.to_thread(schemas.start)
            await run(service_settings, stop=stop, ready=ready)
        finally:
            await asyncio.to_thread(schemas.close)

    return serve
