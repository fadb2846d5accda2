"""`headrace schemas register`: on deploy, before the parts of a release start."""

from __future__ import annotations

import click

from eventlog.clock import now_us
from infra.cli.context import registry_access, settings_with_warnings
from infra.cli.tables import show_table
from infra.schema_registry import publish_schemas, register_schemas
from infra.wiring import schema_registry_of


@click.command("register")
def register() -> None:
    """Make this release's schemas known to all parts, and to the schema registry if there is one.

    To be done before a part of the release starts: parts of older ones read what it writes from then on. Again is as
    good as once.
    """
    address = schema_registry_of(settings_with_warnings())
    with registry_access() as access:
        published = publish_schemas(access.admin, access.registry, now_us=now_us())
        registered = []
        if address is not None:
            registered = register_schemas(
                address, access.admin, access.registry, access.profile.codec, now_us=now_us()
            )  # fmt: skip
    show_table(
        ("subject", "fingerprint"),
        [(event.subject, event.fingerprint) for event in published],
        "Every schema of this release is in the log already.",
    )
    if address is not None:
        show_table(
            ("subject", "version", "schema id"),
            [(event.subject, event.version, event.schema_id) for event in registered],
            f"Every schema of {address.url} has its id in the log already.",
        )
