"""ClickHouse's words, without the wrapping."""

from __future__ import annotations

import pytest

from infra.clickhouse.errors import ClickHouseFault, QueryFailed

WRAPPED = (
    "Code: 164. DB::Exception: Code: 164. DB::Exception: Cannot modify 'max_threads' setting in readonly mode. "
    "(READONLY) (version 26.9.2.1). (READONLY)"
)


@pytest.mark.parametrize(
    ("text", "number", "name", "message"),
    [
        (WRAPPED, 164, "READONLY", "Cannot modify 'max_threads' setting in readonly mode."),
        (
            "Code: 60. DB::Exception: Unknown table 'a (b)'. (UNKNOWN_TABLE) (version 26.2.4.23 (official build))\n",
            60, "UNKNOWN_TABLE", "Unknown table 'a (b)'.",
        ),
        ("connection refused", 0, "", "connection refused."),
    ],
)  # fmt: skip
def test_code_name_and_message_are_told_apart(text: str, number: int, name: str, message: str) -> None:
    fault = ClickHouseFault.parse(text)
    assert (fault.number, fault.name, fault.message) == (number, name, message)


def test_a_fault_is_written_as_clickhouse_writes_it() -> None:
    fault = ClickHouseFault(60, "UNKNOWN_TABLE", "Unknown table 'a'.")
    assert fault.text == "Code: 60. DB::Exception: Unknown table 'a'. (UNKNOWN_TABLE)"
    assert ClickHouseFault.parse(fault.text).text == fault.text


def test_a_syntax_error_for_people_has_no_list_of_tokens() -> None:
    message = "Syntax error: failed at position 1 (x): x. Expected one of: SELECT, WITH."
    text = f"Code: 62. DB::Exception: {message} (SYNTAX_ERROR)"
    failed = QueryFailed(ClickHouseFault.parse(text))
    assert str(failed) == "ClickHouse says: Syntax error: failed at position 1 (x): x. (SYNTAX_ERROR)"
