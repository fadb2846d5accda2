"""`headrace sql` and `headrace explain`: questions about what happened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from infra.cli.context import settings_with_warnings
from infra.clickhouse.access import ClickHouseAccess, clickhouse_access
from infra.explain import explain as explain_response
from infra.runtime.data_directory import DataDirectory
from infra.settings import Settings
from infra.sql import run_sql


@click.command()
@click.argument("query", required=False)
@click.option("--format", "format_", help="One of ClickHouse's formats, such as CSVWithNames or JSONEachRow.")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="Value for {name:Type} in the query.")
def sql(query: str | None, format_: str | None, param: tuple[str, ...]) -> None:
    """Ask ClickHouse, read-only; without QUERY, the query is read from standard input.

    The tables and views are in the database `headrace`: events, token_events, requests,
    latency_breakdown, worker_throughput, dead_letters.
    """
    parameters = dict(_pair(each) for each in param)
    text = query if query is not None else sys.stdin.read()
    with access_of(settings_with_warnings()) as access:
        run_sql(text, access, format=format_, parameters=parameters)


@click.command()
@click.argument("response_id")
def explain(response_id: str) -> None:
    """Draw the waterfall of one response: where its time went, and every decision with its reason.

    RESPONSE_ID is what the API gave: resp_..., chatcmpl-..., or the request id behind it.
    """
    with access_of(settings_with_warnings()) as access:
        explain_response(response_id, access)


@contextmanager
def access_of(settings: Settings) -> Iterator[ClickHouseAccess]:
    """The server that is set, what `headrace up` serves, or chDB's files while nothing runs."""
    directory = DataDirectory(settings.data_dir)
    running = directory.running()
    running_url = None if running is None else running.clickhouse_url
    with clickhouse_access(settings.clickhouse_dsn, running_url, directory.clickhouse) as access:
        yield access


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--param")
    return name, value
