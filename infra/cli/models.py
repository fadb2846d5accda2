"""`headrace models`: versions that can be served."""

from __future__ import annotations

from pathlib import Path

import click

from eventlog.clock import now_us
from infra.cli.compare import compare
from infra.cli.context import registry_access
from infra.cli.tables import show_table
from infra.model_folder import context_tokens_of, unseen_context_tokens
from schemas.events import ModelRegistered
from schemas.names import deployment_for

_POSITIVE = click.IntRange(min=1)


@click.group()
def models() -> None:
    """List, add and compare model versions."""


models.add_command(compare)


@models.command("list")
def list_models() -> None:
    """Every version with the deployment that serves it."""
    with registry_access() as access:
        known = sorted(access.registry.models.values(), key=lambda model: model.model_version)
    rows = [(m.model_version, m.deployment, m.engine, m.context_tokens, m.location) for m in known]
    show_table(("model", "deployment", "engine", "context", "location"), rows, "There are no models yet.")


@models.command("add")
@click.argument("version", metavar="NAME@VERSION")
@click.option("--location", help="Directory with the model's files, on every worker and stream processor.")
@click.option("--engine", type=click.Choice(["torch", "vllm", "echo"]), default="torch", show_default=True)
@click.option("--tokenizer", help="Directory of its tokenizer, or `bytes`.  [default: the location]")
@click.option("--deployment", help="Group of workers that serves it.  [default: made from the name]")
@click.option(
    "--context-tokens",
    type=_POSITIVE,
    help="Prompt and output together.  [default: what the model was made for, at most 8192]",
)
@click.option("--default-max-output-tokens", type=_POSITIVE, default=256, show_default=True)
@click.option("--unchecked", is_flag=True, help="Don't look into the folder: it is on the workers, and not here.")
def add_model(
    version: str,
    location: str | None,
    engine: str,
    tokenizer: str | None,
    deployment: str | None,
    context_tokens: int | None,
    default_max_output_tokens: int,
    unchecked: bool,
) -> None:
    """Register a pinned version, such as chat@v3, and make its topics."""
    if engine == "echo":
        location, tokenizer = location or "echo", tokenizer or "bytes"
        unchecked = True
    elif location is None:
        raise click.UsageError(f"--location is needed for the {engine} engine.")
    else:
        location = str(Path(location).expanduser().absolute())
    event = ModelRegistered(
        model_version=version,
        at_us=now_us(),
        deployment=deployment or deployment_for(version),
        engine=engine,
        location=location,
        tokenizer=tokenizer or location,
        context_tokens=unseen_context_tokens(context_tokens)
        if unchecked
        else context_tokens_of(Path(location), context_tokens, engine),
        default_max_output_tokens=default_max_output_tokens,
    )
    with registry_access() as access:
        access.admin.register_model(event, access.registry)
    click.echo(f"{version} is registered as deployment {event.deployment}: headrace worker --model {version}")
