"""`headrace adapters`: LoRA adapters of model versions."""

from __future__ import annotations

from pathlib import Path

import click

from eventlog.clock import now_us
from infra.adapter_folder import check_adapter_folder
from infra.cli.context import registry_access
from infra.cli.tables import show_table
from schemas.events import AdapterRegistered


@click.group()
def adapters() -> None:
    """List and add LoRA adapters.

    An adapter that is added is known to every part within two seconds: requests ask for it in `model`.
    """


@adapters.command("list")
def list_adapters() -> None:
    """Every adapter with the model version that it is for."""
    with registry_access() as access:
        known = sorted(access.registry.adapters.values(), key=lambda adapter: adapter.adapter)
    rows = [(a.adapter, a.model_version, a.tenant or "all", a.location) for a in known]
    show_table(("adapter", "model", "tenant", "location"), rows, "There are no adapters yet.")


@adapters.command("add")
@click.argument("adapter", metavar="NAME@VERSION")
@click.option("--model", required=True, metavar="NAME@VERSION", help="Version of the model that it was trained on.")
@click.option("--location", required=True, help="Folder with its weights in PEFT's layout, on every worker.")
@click.option("--tenant", help="The only tenant that may use it.  [default: all may]")
@click.option("--unchecked", is_flag=True, help="Don't look into the folder: it is on the workers, and not here.")
def add_adapter(adapter: str, model: str, location: str, tenant: str | None, unchecked: bool) -> None:
    """Register a pinned adapter, such as support-tone@v2."""
    folder = Path(location).expanduser().absolute()
    if not unchecked:
        check_adapter_folder(folder)
    event = AdapterRegistered(
        adapter=adapter,
        at_us=now_us(),
        model_version=model,
        location=str(folder),
        tenant=tenant,
    )
    with registry_access() as access:
        access.admin.register_adapter(event, access.registry)
    click.echo(f"{adapter} is registered for {model}.")
