"""Typed values out of JSON objects."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.fields import parse_json_object, show


def test_an_object_is_parsed_from_bytes_and_from_text() -> None:
    assert parse_json_object(b'{"a": "\xc3\xa9"}') == parse_json_object('{"a": "é"}') == {"a": "é"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff{}", "not UTF-8"),
        (b"[]", "a list"),
        (b"null", "null"),
        (b'"x"', "a string"),
        (b"7", "a number"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": Infinity}', "Infinity"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
    ],
)
def test_anything_else_is_an_invalid_request_that_says_why(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        parse_json_object(body)
    assert caught.value.code == "invalid_json"


def test_a_long_value_is_shown_short() -> None:
    assert show("x" * 1000) == '"' + "x" * 79 + "... (a string)"
    assert show("\ud800") == '"\\ud800"'


def test_a_value_that_is_nested_as_deeply_as_can_be_parsed_is_shown_too() -> None:
    value: list[Any] = []
    for _ in range(sys.getrecursionlimit()):
        value = [value]
    assert show(value) == "a list that is nested too deeply"
