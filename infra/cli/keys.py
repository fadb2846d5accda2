"""`headrace keys`: API keys of tenants."""

from __future__ import annotations

import secrets

import click

from eventlog.clock import now_us
from infra.cli.context import registry_access
from infra.cli.tables import show_table
from schemas.api_keys import KEY_RANDOM_BYTES, new_api_key
from schemas.events import ApiKeyIssued, ApiKeyRevoked


@click.group()
def keys() -> None:
    """List, add and revoke API keys."""


@keys.command("list")
def list_keys() -> None:
    """Every key by its id; the keys themselves are kept nowhere."""
    with registry_access() as access:
        known = sorted(access.registry.keys.values(), key=lambda key: (key.tenant, key.at_us))
    show_table(
        ("key id", "tenant", "name"), [(key.key_id, key.tenant, key.name) for key in known], "There are no keys yet."
    )


@keys.command("add")
@click.argument("tenant")
@click.option("--name", default="", help="What the key is for.")
def add_key(tenant: str, name: str) -> None:
    """Make a key and print it, once: only its hash is kept."""
    key = new_api_key(secrets.token_bytes(KEY_RANDOM_BYTES))
    with registry_access() as access:
        if tenant not in access.registry.tenants:
            raise click.BadParameter(f"there is no tenant {tenant!r}: headrace tenants add {tenant}")
        access.admin.issue_key(
            ApiKeyIssued(tenant=tenant, at_us=now_us(), key_id=key.key_id, key_sha256=key.sha256, name=name)
        )
    click.echo(key.secret)


@keys.command("revoke")
@click.argument("key_id")
def revoke_key(key_id: str) -> None:
    """End a key, by its id."""
    with registry_access() as access:
        key = access.registry.keys.get(key_id)
        if key is None:
            raise click.BadParameter(f"there is no key with the id {key_id!r}: headrace keys list")
        access.admin.revoke_key(ApiKeyRevoked(tenant=key.tenant, at_us=now_us(), key_id=key_id))
    click.echo(f"Key {key_id} of tenant {key.tenant} is revoked.")
