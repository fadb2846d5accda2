"""`headrace settings`: every setting with its value."""

from __future__ import annotations

from dataclasses import fields

import click

from infra.cli.context import settings_with_warnings
from infra.cli.tables import show_table
from infra.settings import Settings, info_of, settings_table, variable_of


@click.command()
@click.option("--markdown", is_flag=True, help="The table of docs/settings.md instead.")
def settings(markdown: bool) -> None:
    """Show every setting with its value. They are environment variables."""
    if markdown:
        click.echo(settings_table(), nl=False)
        return
    values = settings_with_warnings()
    rows = [(variable_of(f), _shown(values, f.name), info_of(f).about) for f in fields(Settings)]
    show_table(("variable", "value", "what it is"), rows, "")


def _shown(values: Settings, name: str) -> str:
    value = getattr(values, name)
    info = info_of(Settings.__dataclass_fields__[name])
    if value is None:
        return f"({info.default_shown})"
    return "***" if info.secret else str(value)
