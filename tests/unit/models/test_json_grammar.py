"""Which JSON schemas are taken, and what is said about the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from models.json_grammar import MAX_JSON_SCHEMA_BYTES, grammar_of, schema_objection

ANY_OBJECT = '{"type":"object"}'
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def taken(json_schema: str, text: str) -> int:
    """How many bytes of the text the grammar takes; one more if it may end there."""
    matcher = LLMatcher(LLTokenizer("byte"), grammar_of(json_schema))
    count = matcher.try_consume_tokens(list(text.encode()))
    return count + matcher.is_accepting()


@pytest.mark.parametrize(
    "schema",
    [
        PERSON,
        {"type": "object"},
        {},
        {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
        {"anyOf": [PERSON, {"type": "null"}]},
        {"type": "string", "pattern": "^[a-z]{2,8}$"},
        {"enum": ["red", "green"]},
        {"type": "string", "x-order": 1},
    ],
)
def test_usual_schemas_are_taken(schema: dict[str, Any]) -> None:
    assert schema_objection(json.dumps(schema)) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "it is no JSON"),
        ('{"a": NaN}', "it is no JSON: NaN"),
        ("[]", "it must be a JSON object"),
        ("[" * 100_000, "bytes"),
        ("[" * 50_000, "it is no JSON"),
        ('{"title": "\ud800"}', "surrogate"),
        (json.dumps({"title": "x" * MAX_JSON_SCHEMA_BYTES}), f"and may have {MAX_JSON_SCHEMA_BYTES}"),
        ('{"type": "objec"}', "Invalid type: objec"),
        ('{"$ref": "#/$defs/gone"}', "does not exist"),
        ('{"$ref": "#"}', "'#' refers to must hold itself"),
        ('{"$ref": "https://example.org/schema"}', "does not fetch"),
        ('{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ('{"not": {}, "x-guidance": {"lenient": true}}', "not"),
        ('{"type": "string", "pattern": "(?=a)b"}', "look-around"),
        ('{"type": "integer", "minimum": 5, "maximum": 1}', "Unsatisfiable"),
        (json.dumps({"type": "string", "allOf": [{"pattern": f".*a{i}.*"} for i in range(9)]}), "regex"),
    ],
)
def test_what_no_answer_can_be_held_to_is_refused_with_the_reason(schema: str, reason: str) -> None:
    told = schema_objection(schema)
    assert told is not None
    assert reason in told
    assert len(told) < 500
    assert "\n" not in told


def test_the_longest_schema_that_is_allowed_is_judged() -> None:
    empty = json.dumps({"title": ""})
    assert schema_objection(json.dumps({"title": "x" * (MAX_JSON_SCHEMA_BYTES - len(empty))})) is None


def test_the_grammar_takes_what_the_schema_allows_and_ends_there() -> None:
    text = '{"name": "Ann", "age": 7}'
    assert taken(json.dumps(PERSON), text) == len(text) + 1
    assert taken(json.dumps(PERSON), '{"name": "Ann", "age": -7}') == len('{"name": "Ann", "age": ')
    assert taken(ANY_OBJECT, text) == len(text) + 1
    assert taken(ANY_OBJECT, "[1]") == 0


def test_white_space_between_two_values_is_bounded() -> None:
    assert taken(ANY_OBJECT, "{" + " " * 9) == 1 + 8
    assert taken(ANY_OBJECT, "{\n" + " " * 65) == 2 + 64
    assert taken(ANY_OBJECT, "{\n" + "\t" * 17) == 2 + 16
    assert taken(ANY_OBJECT, "{\n\t ") == 3


@pytest.mark.parametrize("text", ['{"a":[1,2]}', '{"a": [1, 2]}', '{ "a" : 1 }', '{\r\n\t"a": [\r\n\t\t1\r\n\t]\r\n}'])
def test_texts_are_laid_out_as_writers_of_json_do(text: str) -> None:
    assert taken(ANY_OBJECT, text) == len(text) + 1


@pytest.mark.parametrize("text", ["{\n\n", "{ \n", "{\n \n"])
def test_no_line_stays_empty(text: str) -> None:
    assert taken(ANY_OBJECT, text) == len(text) - 1
