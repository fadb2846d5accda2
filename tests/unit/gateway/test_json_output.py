"""Answers that are JSON: how they are asked for, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.lib._parsing._completions import type_to_response_format_param
from openai.types.responses import ResponseTextConfig
from pydantic import BaseModel

from gateway.errors import InvalidRequest
from gateway.fields import Fields
from gateway.json_output import ANY_OBJECT, MOST_LEVELS, response_format_schema, text_format_of, text_format_schema


class Step(BaseModel):
    explanation: str
    output: int


SCHEMA = {"type": "object", "properties": {"größe": {"type": "integer"}}}


def of_chat(value: Any) -> str | None:
    return response_format_schema(Fields({"response_format": value}))


def of_responses(value: Any) -> str | None:
    return text_format_schema(Fields({"text": value}))


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_text_asks_for_nothing(value: Any) -> None:
    assert of_chat(value) is None
    assert of_responses({"format": value, "verbosity": "medium"}) is None
    assert of_responses(None) is None
    assert of_responses({}) is None


def test_a_json_object_is_any_object() -> None:
    assert of_chat({"type": "json_object"}) == of_responses({"format": {"type": "json_object"}}) == ANY_OBJECT


def test_a_schema_is_kept_as_json_with_its_name_as_title() -> None:
    described = {"name": "sizes", "strict": True, "description": "All sizes.", "schema": SCHEMA}
    of_both = {
        of_chat({"type": "json_schema", "json_schema": described}),
        of_responses({"format": {"type": "json_schema", **described}}),
    }
    assert of_both == {'{"title":"sizes","type":"object","properties":{"größe":{"type":"integer"}}}'}


def test_what_the_official_package_makes_of_a_pydantic_model_is_taken() -> None:
    schema = of_chat(type_to_response_format_param(Step))
    assert schema is not None
    assert json.loads(schema)["title"] == "Step"
    assert set(json.loads(schema)["required"]) == {"explanation", "output"}


@pytest.mark.parametrize(
    ("value", "param", "shown"),
    [
        ("json", "response_format", '"json"'),
        ({}, "response_format.type", "null"),
        ({"type": "xml"}, "response_format.type", '"xml"'),
        ({"type": "json_object", "schema": {}}, "response_format.schema", "unknown"),
        ({"type": "json_schema"}, "response_format.json_schema", "required"),
        ({"type": "json_schema", "json_schema": {}}, "response_format.json_schema.name", "required"),
        ({"type": "json_schema", "json_schema": {"name": "a b"}}, "response_format.json_schema.name", '"a b"'),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "response_format.json_schema.schema", "required"),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": "x"}},
            "response_format.json_schema.schema",
            '"x"',
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": "yes"}},
            "response_format.json_schema.strict",
            '"yes"',
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "regex": "x"}},
            "response_format.json_schema.regex",
            "unknown",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"title": "\ud800"}}},
            "response_format.json_schema.schema",
            "surrogates",
        ),
    ],
)
def test_a_wrong_format_is_told_with_its_place(value: Any, param: str, shown: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        of_chat(value)
    assert caught.value.param == param
    assert shown in caught.value.message
    assert param in caught.value.message


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 1_000, 100_000])
def test_a_schema_that_is_nested_too_deeply_is_told(levels: int) -> None:
    schema = deep(levels)
    with pytest.raises(InvalidRequest, match="more than 100 levels deep"):
        of_chat({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    while schema:  # else it is taken down recursively
        schema = schema.pop("not")


def test_as_many_levels_as_are_allowed_are_kept_and_told() -> None:
    schema = of_chat({"type": "json_schema", "json_schema": {"name": "a", "schema": deep(MOST_LEVELS)}})
    assert text_format_of(schema)["schema"] == {"title": "a"} | deep(MOST_LEVELS)
    assert text_format_of(json.dumps(deep(MOST_LEVELS + 1)))["schema"] == {}


def test_a_schema_with_a_number_beyond_all_floats_is_told() -> None:
    schema = json.loads('{"minimum": 1e400}')
    with pytest.raises(InvalidRequest, match="64-bit float") as caught:
        of_chat({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    assert caught.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"verbosity": "high"}, "text.verbosity"),
        ({"style": "plain"}, "text.style"),
        ({"format": {"type": "json_schema", "json_schema": {}}}, "text.format.json_schema"),
        ({"format": {"type": "grammar"}}, "text.format.type"),
    ],
)
def test_a_wrong_text_is_told_with_its_place(value: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        of_responses(value)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("json_schema", "kind", "name"),
    [
        (None, "text", None),
        (ANY_OBJECT, "json_object", None),
        ('{"title": "sizes", "type": "object"}', "json_schema", "sizes"),
        ('{"title": "All sizes"}', "json_schema", "response"),
        ("{", "json_schema", "response"),
        ("[]", "json_schema", "response"),
        ('{"title": "sizes", "minimum": 1e400}', "json_schema", "response"),
        ('{"title": "sizes", "minimum": NaN}', "json_schema", "response"),
    ],
)
def test_the_response_object_tells_the_format_whoever_asked_for_it(
    json_schema: str | None, kind: str, name: str | None
) -> None:
    told = text_format_of(json_schema)
    ResponseTextConfig.model_validate({"format": told})
    assert (told["type"], told.get("name")) == (kind, name)
