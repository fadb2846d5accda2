"""What a reader may ask. The statements stand in the canonical form in which the guard gets them."""

from __future__ import annotations

import pytest

from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.guard import inspect


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1\nINTO OUTFILE '/tmp/x'",
        "EXPLAIN\nSELECT 1\nINTO OUTFILE 'x'\nFORMAT JSON",
        "SELECT file('/etc/passwd')",
        "SELECT `file`('/etc/passwd')",
        "SELECT * APPLY file\nFROM x",
        "SELECT *\nFROM Python(engine)",
        "KILL QUERY WHERE 1",
        "BACKUP DATABASE headrace TO Disk('a', 'b')",
    ],
)
def test_what_reaches_out_of_the_tables_is_refused_as_readonly(statement: str) -> None:
    with pytest.raises(ClickHouseFault) as caught:
        inspect(statement)
    assert (caught.value.number, caught.value.name) == (164, "READONLY")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'INTO OUTFILE', 'file', 'it\\'s file', 'kill'",
        "SELECT files, `a into outfile b`\nFROM profile",
        "SHOW TABLES",
        "",
    ],
)
def test_the_same_words_in_strings_and_longer_names_are_fine(statement: str) -> None:
    inspect(statement)


@pytest.mark.parametrize(
    ("statement", "form"),
    [
        ("SELECT 1", None),
        ("SELECT 1\nFORMAT JSONEachRow", "JSONEachRow"),
        ("SELECT 1\nFORMAT JSON\nSETTINGS max_threads = 1", "JSON"),
        ("SELECT 'FORMAT JSON'", None),
        ("SELECT *\nFROM (SELECT 1 AS format)", None),
    ],
)
def test_the_answers_format_is_that_of_the_statements_own_clause(statement: str, form: str | None) -> None:
    assert inspect(statement).format == form
