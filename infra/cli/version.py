"""`headrace version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

_SHOWN = ("headrace", "confluent-kafka", "faust-streaming", "torch", "transformers", "chdb", "clickhouse-connect")


@click.command()
def version() -> None:
    """Show the version of Headrace, and of what matters for a bug report."""
    click.echo(f"{'python':<20} {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in _SHOWN:
        try:
            click.echo(f"{name:<20} {installed_version(name)}")
        except PackageNotFoundError:
            click.echo(f"{name:<20} is not installed")
