"""`headrace demo`: from nothing to a streamed answer, and where its time went."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from dataclasses import replace

import click
from rich.console import Console
from rich.markup import escape

from headrace_client import RequestProblem, Stream
from infra.builtin_models import builtin_names
from infra.cli.analyst import access_of
from infra.cli.chat import gateway_errors, problem_with
from infra.cli.context import settings_with_warnings
from infra.cli.model_progress import ensure_smollm2_with_progress
from infra.errors import AnswerFailed, PortTaken
from infra.explain import explain
from infra.plan import Plan, prepared
from infra.runtime.ports import claim_port
from infra.settings import Settings
from infra.up import Platform, running

QUESTION = "What is a river?"


@click.command()
@click.option("--prompt", default=QUESTION, show_default=True, help="What to ask the model.")
def demo(prompt: str) -> None:
    """Start everything, stream one real answer, show where its time went, and stop clean."""
    console = Console(highlight=False)
    # For one answer nobody needs the worker's throughput curve, and everybody would wait for it.
    settings = replace(on_free_ports(settings_with_warnings()), throughput_seconds=0.0)
    with prepared(settings, lambda cache: ensure_smollm2_with_progress(cache, console)) as plan:
        asyncio.run(_demo(plan, console, prompt))


def on_free_ports(settings: Settings) -> Settings:
    """A port that nobody chose and that is taken gives way to any free one: a demo has no business to fail on it."""
    chosen = Settings()
    changes: dict[str, int] = {}
    for name in ("kafka_port", "gateway_port", "clickhouse_port"):
        port = getattr(settings, name)
        if port != getattr(chosen, name):
            continue
        try:
            claim_port(port, name)
        except PortTaken:
            changes[name] = 0
    return replace(settings, **changes)  # type: ignore[arg-type]


async def _demo(plan: Plan, console: Console, prompt: str) -> None:
    async with running(plan, console) as platform:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, platform.request_stop)
        if not await platform.wait_ready():
            return
        platform.hide()
        response_id = await _until_answered_or_stopped(platform, plan, console, prompt)
        if response_id is not None:
            await asyncio.to_thread(_waterfall, plan, console, response_id)
            _where_next(console)


async def _until_answered_or_stopped(platform: Platform, plan: Plan, console: Console, prompt: str) -> str | None:
    """The id of the finished answer; None if Ctrl-C came first. Raises AnswerFailed, GatewayUnreachable."""
    stopped = asyncio.create_task(platform.wait_stopped())
    asking = asyncio.create_task(_ask(plan, console, prompt))
    await asyncio.wait({stopped, asking}, return_when=asyncio.FIRST_COMPLETED)
    if platform.is_stopping:
        asking.cancel()
        await asyncio.gather(asking, stopped, return_exceptions=True)
        return None
    stopped.cancel()
    return asking.result()


async def _ask(plan: Plan, console: Console, prompt: str) -> str:
    """Write the answer as it comes; its id."""
    (model, *_) = builtin_names(plan.settings.model)
    url = plan.running.gateway_url
    console.print(f"\n[bold]You:[/bold] {escape(prompt)}\n[bold]{model}:[/bold] ", end="")
    with gateway_errors(url):
        async with Stream(url, api_key=plan.credentials.api_key) as stream:
            try:
                response = await stream.create(model=model, input=prompt, temperature=0.0)
                async for delta in response.text_deltas():
                    click.echo(delta, nl=False)
                click.echo()
                await response.answer()
            except RequestProblem as error:
                raise AnswerFailed(model, error.message) from error
    assert response.end is not None
    if problem := problem_with(response.end):
        click.echo(f"[{problem}]", err=True)
    return response.response_id


def _waterfall(plan: Plan, console: Console, response_id: str) -> None:
    """Blocks for about a second, until ClickHouse has every event of the response."""
    console.print()
    with access_of(plan.settings) as access:
        explain(response_id, access, console=console)


def _where_next(console: Console) -> None:
    where = "" if shutil.which("headrace") else f" (`headrace` is {sys.argv[0]})"
    console.print(
        f"\nWhere next{where}:\n"
        "  headrace up      keeps all of this running, with a playground and an API for the openai package\n"
        "  headrace chat    talks to it\n"
        '  headrace sql "SELECT * FROM headrace.requests"   asks ClickHouse about every request\n',
        markup=False,
        soft_wrap=True,
    )
