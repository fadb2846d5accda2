"""The parts as commands: what `headrace up` starts, and what an operator starts one by one on a cluster."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import replace

import click

from infra.cli.context import settings_with_warnings
from infra.cli.failures import is_lasting, is_ours
from infra.runtime.part import Serve, run_part
from infra.runtime.parts import EXIT_CANNOT_WORK
from infra.settings import Settings

_ready_fd = click.option("--ready-fd", type=int, hidden=True, help="Where `headrace up` hears that the part is ready.")


@click.command()
@_ready_fd
def gateway(ready_fd: int | None) -> None:
    """Run one gateway: HTTP and WebSocket on HEADRACE_GATEWAY_HOST and HEADRACE_GATEWAY_PORT."""
    from infra.services import gateway_service

    _run(gateway_service, ready_fd)


@click.command()
@_ready_fd
def streams(ready_fd: int | None) -> None:
    """Run one stream processor: validate, quota, route. Several share the partitions."""
    from infra.services import streams_service

    _run(streams_service, ready_fd)


@click.command()
@_ready_fd
@click.option("--model", help="Version or alias to serve.  [default: HEADRACE_MODEL]")
def worker(ready_fd: int | None, model: str | None) -> None:
    """Run one GPU consumer, which serves one registered model version."""
    from infra.services import worker_service

    _run(lambda settings: worker_service(replace(settings, model=model or settings.model)), ready_fd)


@click.command()
@_ready_fd
def sink(ready_fd: int | None) -> None:
    """Run one sink: every event into ClickHouse."""
    from infra.services import sink_service

    _run(sink_service, ready_fd)


def _run(service: Callable[[Settings], Serve], ready_fd: int | None) -> None:
    """Under `headrace up` standard error is the part's log, and its last line is shown to people as the reason."""
    try:
        settings = settings_with_warnings()
        run_part(service(settings), ready_fd, settings.log_level)
    except Exception as error:
        if ready_fd is None:
            raise
        if is_ours(error):
            click.echo(str(error), err=True)
        else:
            traceback.print_exception(error)
        sys.exit(EXIT_CANNOT_WORK if is_lasting(error) else 1)
