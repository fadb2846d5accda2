"""`headrace routes`: what model aliases resolve to."""

from __future__ import annotations

import click

from eventlog.clock import now_us
from infra.cli.context import registry_access
from infra.cli.tables import show_table
from schemas.events import Route, RouteTarget


@click.group()
def routes() -> None:
    """Show and set what model aliases resolve to."""


@routes.command("list")
def list_routes() -> None:
    """Every alias with its versions."""
    with registry_access() as access:
        known = access.registry.routes
    rows = [
        (alias, ", ".join(f"{target.model_version} {target.percent:g}%" for target in known[alias].targets))
        for alias in sorted(known)
    ]
    show_table(("alias", "resolves to"), rows, "There are no routes yet.")


@routes.command("set")
@click.argument("alias")
@click.argument("version", metavar="NAME@VERSION")
@click.option("--reason", default="set from the command line", show_default=True, help="Kept with the change.")
def set_route(alias: str, version: str, reason: str) -> None:
    """Let an alias resolve to one pinned version, for every request from now on."""
    if "@" in alias:
        raise click.BadParameter(f"{alias!r} is a pinned version; an alias has no @ in it")
    with registry_access() as access:
        if version not in access.registry.models:
            known = ", ".join(sorted(access.registry.models)) or "none"
            raise click.BadParameter(f"there is no model version {version!r}; there are: {known}")
        target = RouteTarget(model_version=version, percent=100.0)
        table = {**access.registry.routes, alias: Route(alias=alias, targets=(target,))}
        access.admin.set_routes(tuple(table.values()), access.registry, now_us=now_us(), reason=reason)
    click.echo(f"{alias} resolves to {version}.")
