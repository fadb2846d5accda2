"""`headrace up`: everything that serves requests, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal

import click
from rich.console import Console

from infra.cli.context import settings_with_warnings
from infra.cli.model_progress import ensure_smollm2_with_progress
from infra.plan import Plan, prepared
from infra.up import running


@click.command()
def up() -> None:
    """Start broker, streams, worker, sink and gateway, and keep them running until Ctrl-C.

    State lives in HEADRACE_DATA_DIR (.headrace in this folder); each part's log is in its folder `logs`.
    """
    console = Console(highlight=False)
    settings = settings_with_warnings()
    with prepared(settings, lambda cache: ensure_smollm2_with_progress(cache, console)) as plan:
        asyncio.run(_up(plan, console))


async def _up(plan: Plan, console: Console) -> None:
    async with running(plan, console) as platform:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, platform.request_stop)
        if await platform.wait_ready():
            _greet(plan, console)
        await platform.wait_stopped()


def _greet(plan: Plan, console: Console) -> None:
    url = plan.running.gateway_url
    console.print(
        f"\nReady. Ctrl-C stops everything.\n\n"
        f"  playground  {url}/\n"
        f"  API         {url}/v1\n"
        f"  API key     {plan.credentials.api_key}  (tenant {plan.credentials.tenant})\n"
        f"  logs        {plan.directory.logs}\n\n"
        f"Talk to it with `headrace chat`, ask ClickHouse with `headrace sql`.\n",
        markup=False,
        soft_wrap=True,
    )
