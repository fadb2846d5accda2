"""Small tables for people on a terminal, and tab-separated lines for pipes."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], nothing: str) -> None:
    """`nothing` is said on standard error where there are no rows."""
    console = Console()
    if not rows:
        click.echo(nothing, err=True)
    elif console.is_terminal:
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))  # as it is, whatever brackets are in it
        console.print(table)
    else:
        for line in (columns, *rows):
            click.echo("\t".join(str(cell) for cell in line))
