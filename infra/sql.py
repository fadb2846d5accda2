"""`headrace sql`: one statement to ClickHouse, a table for people, the format of their choice for pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from infra.clickhouse.access import ClickHouseAccess
from infra.clickhouse.engine import Question

_TABLE_FORMAT = "JSONCompact"
_PIPE_FORMAT = "TabSeparatedWithNames"
_NUMBERS = ("Int", "UInt", "Float", "Decimal", "BFloat")


def run_sql(
    query: str,
    access: ClickHouseAccess,
    *,
    format: str | None = None,
    parameters: Mapping[str, str] | None = None,
    console: Console | None = None,
    output: BinaryIO | None = None,
) -> None:
    """Print the answer: as a table on a terminal, else as tab-separated values with names.

    format: any of ClickHouse's formats instead; a FORMAT clause of the query wins over it. parameters: for
    `{name:Type}`. Raises QueryFailed, ClickHouseUnreachable.
    """
    console = console or Console()
    wanted = format or (_TABLE_FORMAT if console.is_terminal else _PIPE_FORMAT)
    settings = {"output_format_json_quote_64bit_integers": "0"} if wanted == _TABLE_FORMAT else {}
    answer = access.ask(Question(query, format=wanted, parameters=parameters or {}, settings=settings))
    if format is None and wanted == _TABLE_FORMAT == answer.format and answer.body:
        _print_table(json.loads(answer.body), console)
        return
    output = output or sys.stdout.buffer
    output.write(answer.body)
    output.flush()


def _print_table(answer: Mapping[str, Any], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in answer["meta"]:
        justify: JustifyMethod = "right" if _is_number(column["type"]) else "left"
        table.add_column(Text(column["name"]), justify=justify, overflow="fold")
    for row in answer["data"]:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)
    seconds = answer.get("statistics", {}).get("elapsed", 0.0)
    rows = len(answer["data"])
    console.print(Text(f"{rows:,} row{'' if rows == 1 else 's'} in {seconds * 1000:,.1f} ms", style="dim"))


def _is_number(type_name: str) -> bool:
    for wrapper in ("LowCardinality(", "Nullable("):
        type_name = type_name.removeprefix(wrapper)
    return type_name.startswith(_NUMBERS)


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, float):
        return Text(f"{value:,.3f}".rstrip("0").rstrip("."))
    return Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
