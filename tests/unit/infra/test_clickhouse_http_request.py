"""What a request asks for."""

from __future__ import annotations

import pytest

from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.http_request import read_request

FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_the_statement_is_the_parameter_then_the_body() -> None:
    assert read_request({"query": "SELECT 1"}, {}, b"").question.text == "SELECT 1"
    assert read_request({}, {}, b"SELECT 2").question.text == "SELECT 2"
    assert read_request({"query": "SELECT"}, {}, b"3").question.text == "SELECT\n3"


def test_what_curl_sends_with_d_is_a_statement_and_not_a_form() -> None:
    assert read_request({}, FORM, b"SELECT a = 'b&c'").question.text == "SELECT a = 'b&c'"


def test_forms_carry_the_statement_and_its_parameters() -> None:
    encoded = read_request({}, FORM, b"query=SELECT+%7Bx%3AInt8%7D&param_x=1").question
    assert (encoded.text, encoded.parameters) == ("SELECT {x:Int8}", {"x": "1"})
    body = (
        b'--X\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT {x:String}\r\n'
        b'--X\r\nContent-Disposition: form-data; name="param_x"\r\n\r\nit\'s\\n\r\n--X--\r\n'
    )
    multipart = read_request({}, {"content-type": "multipart/form-data; boundary=X"}, body).question
    assert (multipart.text, multipart.parameters) == ("SELECT {x:String}", {"x": "it's\\n"})


def test_unreserved_parameters_are_settings() -> None:
    asked = read_request(
        {"query": "SELECT 1", "query_id": "q", "max_threads": "1", "param_a": "2", "session_id": "s"}, {}, b""
    )
    assert asked.query_id == "q"
    assert asked.question.settings == {"max_threads": "1"}
    assert asked.question.parameters == {"a": "2"}


def test_database_and_format_come_from_parameters_headers_or_the_defaults() -> None:
    headers = {"x-clickhouse-database": "system", "x-clickhouse-format": "CSV"}
    plain, by_header = read_request({}, {}, b"x").question, read_request({}, headers, b"x").question
    by_parameter = read_request({"database": "d", "default_format": "JSON"}, headers, b"x").question
    assert (plain.database, plain.format) == ("headrace", "TabSeparated")
    assert (by_header.database, by_header.format) == ("system", "CSV")
    assert (by_parameter.database, by_parameter.format) == ("d", "JSON")


@pytest.mark.parametrize(
    ("parameters", "headers", "name"),
    [({"compress": "1"}, {}, "NOT_IMPLEMENTED"), ({}, {"content-encoding": "lz4"}, "READONLY")],
)
def test_compression_is_refused_in_words(parameters: dict[str, str], headers: dict[str, str], name: str) -> None:
    with pytest.raises(ClickHouseFault) as caught:
        read_request(parameters, headers, b"SELECT 1")
    assert caught.value.name == name
