"""From settings to each part as a service. Each part's code is imported when that part is asked for, and no other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from infra.runtime.part import Serve
from infra.settings import Settings
from infra.wiring import broker_profile, connected, topics_of


def instance_name(part: str) -> str:
    """A name that no other process of the cluster has."""
    return f"{part}-{socket.gethostname()}-{os.getpid()}"


def gateway_service(settings: Settings) -> Serve:
    from gateway.service import run
    from gateway.settings import GatewaySettings

    settings = connected(settings)
    service_settings = GatewaySettings(
        profile=broker_profile(settings),
        topics=topics_of(settings),
        host=settings.gateway_host,
        port=settings.gateway_port,
        gateway_id=instance_name("gateway"),
    )

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        await run(service_settings, stop=stop, ready=ready)

    return serve


def streams_service(settings: Settings) -> Serve:
    from streams.service import run
    from streams.settings import StreamsSettings

    settings = connected(settings)
    service_settings = StreamsSettings(
        profile=broker_profile(settings), topics=topics_of(settings), data_dir=settings.data_dir / "streams"
    )

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        await run(service_settings, stop=stop, ready=ready)

    return serve
