"""`headrace sql`: tables for people, formats for pipes, errors in one line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from infra.clickhouse.access import ClickHouseAccess, HttpAccess, clickhouse_access
from infra.clickhouse.engine import Answer, Question
from infra.clickhouse.errors import ClickHouseUnreachable, NothingRecorded, QueryFailed
from infra.sql import run_sql
from tests.clickhouse_world import world
from tests.request_story import Story


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that nobody has open."""
    path = tmp_path_factory.mktemp("clickhouse")
    with world(path) as found:
        found.put(Story().whole())
    return path


@pytest.fixture
def access(path: Path) -> Iterator[ClickHouseAccess]:
    with clickhouse_access(None, None, path) as found:
        yield found


def on_terminal(query: str, access: ClickHouseAccess) -> str:
    screen = io.StringIO()
    run_sql(query, access, console=Console(file=screen, force_terminal=True, color_system=None, width=100))
    return screen.getvalue()


def in_pipe(query: str, access: ClickHouseAccess, **options: str) -> bytes:
    output = io.BytesIO()
    run_sql(query, access, console=Console(file=io.StringIO()), output=output, **options)  # type: ignore[arg-type]
    return output.getvalue()


def test_a_terminal_gets_a_table_with_numbers_to_the_right(access: ClickHouseAccess) -> None:
    lines = on_terminal("SELECT tenant, output_tokens, NULL AS nothing FROM requests", access).splitlines()
    assert [line.rstrip() for line in lines[:2]] == ["tenant  output_tokens  nothing", "acme                4  NULL"]
    assert lines[2].startswith("1 row in ")


def test_a_pipe_gets_tab_separated_values_with_names(access: ClickHouseAccess) -> None:
    assert in_pipe("SELECT tenant, attempts FROM requests", access) == b"tenant\tattempts\nacme\t1\n"


def test_a_format_can_be_chosen_by_option_or_by_the_query_itself(access: ClickHouseAccess) -> None:
    answer = in_pipe("SELECT tenant FROM requests", access, format="JSONEachRow")
    assert json.loads(answer) == {"tenant": "acme"}
    assert in_pipe("SELECT tenant FROM requests FORMAT CSV", access) == b'"acme"\n'


def test_markup_in_a_value_is_shown_as_it_is(access: ClickHouseAccess) -> None:
    assert "[bold]x[/]" in on_terminal("SELECT '[bold]x[/]' AS v", access)


def test_an_error_is_one_line_in_clickhouses_words(access: ClickHouseAccess) -> None:
    with pytest.raises(QueryFailed) as caught:
        in_pipe("SELECT nope\nFROM requests", access)
    assert str(caught.value).startswith("ClickHouse says: Unknown expression identifier `nope`")
    assert "\n" not in str(caught.value)


def test_nothing_can_be_written(access: ClickHouseAccess) -> None:
    with pytest.raises(QueryFailed, match="READONLY"):
        in_pipe("TRUNCATE TABLE events", access)


def test_a_data_directory_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NothingRecorded, match="headrace up"), clickhouse_access(None, None, tmp_path / "no"):
        pass
    assert not (tmp_path / "no").exists()


def test_an_address_where_nobody_answers_is_named_without_its_password() -> None:
    with (
        HttpAccess.at("clickhouse://me:secret@127.0.0.1:1/headrace") as access,
        pytest.raises(ClickHouseUnreachable, match=r"http://127\.0\.0\.1:1/ ") as caught,
    ):
        access.ask(Question("SELECT 1"))
    assert "secret" not in str(caught.value)


def test_a_statement_without_an_answer_prints_nothing() -> None:
    class Silent:
        def ask(self, question: Question) -> Answer:
            return Answer(b"", question.format)

    assert on_terminal("USE headrace", Silent()) == ""
