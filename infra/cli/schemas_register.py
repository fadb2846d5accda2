"""`headrace schemas register`: on deploy, before the parts of a release start."""

from __future__ import annotations

import click

from eventlog.clock import now_us
from infra.cli.context import registry_access, settings_with_warnings
from infra.cli.tables import show_table
from infra.errors import NoSchemaRegistry
from infra.schema_registry import register_schemas
from infra.wiring import schema_registry_of


@click.command("register")
def register() -> None:
    """Make every schema known to the schema registry, and its ids to all parts. Again is as good as once."""
    address = schema_registry_of(settings_with_warnings())
    if address is None:
        raise NoSchemaRegistry
    with registry_access() as access:
        new = register_schemas(address, access.admin, access.registry, access.profile.codec, now_us=now_us())
    show_table(
        ("subject", "version", "schema id"),
        [(event.subject, event.version, event.schema_id) for event in new],
        f"Every schema of {address.url} has its id in the log already.",
    )
