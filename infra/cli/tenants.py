"""`headrace tenants`: who may ask, and how much."""

from __future__ import annotations

import click

from eventlog.clock import now_us
from infra.cli.context import registry_access
from infra.cli.tables import show_table
from schemas.events import TenantRegistered

_POSITIVE = click.IntRange(min=1)


@click.group()
def tenants() -> None:
    """List tenants, add one, change its limits."""


@tenants.command("list")
def list_tenants() -> None:
    """Every tenant with its limits."""
    with registry_access() as access:
        known = sorted(access.registry.tenants.values(), key=lambda tenant: tenant.tenant)
    rows = [(t.tenant, t.requests_per_minute, t.tokens_per_minute, t.max_concurrent_requests, t.weight) for t in known]
    show_table(("tenant", "requests/min", "tokens/min", "concurrent", "weight"), rows, "There are no tenants yet.")


@tenants.command("add")
@click.argument("name")
@click.option("--requests-per-minute", type=_POSITIVE, default=600, show_default=True)
@click.option("--tokens-per-minute", type=_POSITIVE, default=200_000, show_default=True)
@click.option("--concurrent", type=_POSITIVE, default=64, show_default=True, help="Requests at the same time.")
@click.option("--weight", type=click.FloatRange(0.01, 1000), default=1.0, show_default=True, help="Share of the GPUs.")
def add_tenant(name: str, requests_per_minute: int, tokens_per_minute: int, concurrent: int, weight: float) -> None:
    """Make a tenant's topics and register it; for a tenant that is there, change its limits."""
    event = TenantRegistered(
        tenant=name,
        at_us=now_us(),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        max_concurrent_requests=concurrent,
        weight=weight,
    )
    with registry_access() as access:
        was_there = name in access.registry.tenants
        access.admin.register_tenant(event, access.registry)
    click.echo(f"Tenant {name} has new limits." if was_there else f"Tenant {name} is there: headrace keys add {name}")
