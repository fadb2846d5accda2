"""Schemas whose references never end, and those that look like it."""

from __future__ import annotations

from typing import Any

import pytest

from models.schema_references import endless_reference

LOOP = {"$ref": "#/$defs/loop"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        ({"$ref": "#"}, "#"),
        ({"allOf": [{"$ref": "#"}]}, "#"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "#"),
        ({"oneOf": [{"$ref": "#/oneOf/0"}]}, "#/oneOf/0"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "#"),
        ({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}, "#"),
        (an_object(next={"$ref": "#"}), "#"),
        (an_object(next={"$ref": "#/properties/next"}), "#/properties/next"),
        ({"properties": {"a": LOOP}, "$defs": {"loop": LOOP}}, "#/$defs/loop"),
        ({"additionalProperties": LOOP, "$defs": {"loop": LOOP}}, "#/$defs/loop"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b~1%25"}, "b/%": {"$ref": "#/$defs/a"}}}, "#/$defs/a"),
        ({"type": ["object", "array"], "minItems": 1, "items": {"$ref": "#"}} | {"type": ["array"]}, "#"),
    ],
)
def test_a_reference_that_never_ends_is_named(schema: dict[str, Any], reference: str) -> None:
    assert endless_reference(schema) == reference


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "prefixItems": [{"type": "null"}], "items": {"$ref": "#"}, "minItems": 1},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        an_object(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        {"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "null"}}},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/gone"},
        {"$ref": "#/enum/7/x", "enum": [{"$ref": "#"}]},
        {"const": {"$ref": "#"}},
        an_object(**{"$ref": {"type": "null"}}),
        {"properties": 7, "allOf": 7, "required": 7, "type": "object", "$ref": 7, "anyOf": [True, 7]},
        {"type": "array", "minItems": "7", "items": {"$ref": "#"}},
    ],
)
def test_one_that_can_end_is_not(schema: dict[str, Any]) -> None:
    assert endless_reference(schema) is None


def test_a_schema_of_any_depth_is_followed() -> None:
    schema: dict[str, Any] = {"$ref": "#"}
    for _ in range(5_000):
        schema = {"items": schema}
    assert endless_reference(schema) is None
    while schema:  # else it is taken down recursively
        schema = schema.pop("items", {})
