"""Answers that are JSON: `response_format` and `text.format` as the schema that goes into the log, and back.

The log has the schema alone. A name stands in it as its `title`, unless it has one of its own.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Any, Final

from gateway.errors import InvalidRequest
from gateway.fields import Fields, show

ANY_OBJECT: Final = '{"type":"object"}'
"""The schema of `json_object`: some JSON object."""

MOST_LEVELS: Final = 100
"""Objects and lists in each other in a schema. No engine compiles much more, and Python's own bound moves."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DEFAULT_NAME = "response"
_TYPES = "text, json_object or json_schema"


def response_format_schema(fields: Fields) -> str | None:
    """Of a chat completion's or completion's `response_format`, in the log's form. Raises InvalidRequest."""
    given = fields.inner("response_format")
    if given is None:
        return None
    if _type(given) == "json_schema":
        given.only("type", "json_schema")
        described = given.inner("json_schema")
        if described is None:
            raise _missing(given, "json_schema", "an object with name and schema")
        described.only("name", "description", "strict", "schema")
        return _schema(described)
    given.only("type")
    return ANY_OBJECT if _type(given) == "json_object" else None


def text_format_schema(fields: Fields) -> str | None:
    """Of `text` of the Responses API, in the log's form. Raises InvalidRequest."""
    text = fields.inner("text")
    if text is None:
        return None
    text.only("format", "verbosity")
    if text.text("verbosity") not in (None, "medium"):
        text.wrong("verbosity", text.raw("verbosity"), "medium, or left out")
    given = text.inner("format")
    if given is None:
        return None
    if _type(given) == "json_schema":
        given.only("type", "name", "description", "strict", "schema")
        return _schema(given)
    given.only("type")
    return ANY_OBJECT if _type(given) == "json_object" else None


def text_format_of(json_schema: str | None) -> dict[str, Any]:
    """`text.format` of the response object, from what the log has: some service may have written that."""
    if json_schema is None:
        return {"type": "text"}
    if json_schema == ANY_OBJECT:
        return {"type": "json_object"}
    try:
        schema = json.loads(json_schema)
        # It goes into a response, which must stay JSON that anybody reads.
        is_shown = isinstance(schema, dict) and not _is_deep(schema)
        json.dumps(schema if is_shown else {}, allow_nan=False)
    except (ValueError, RecursionError):
        is_shown = False
    if not is_shown:
        schema = {}
    title = schema.get("title")
    name = title if isinstance(title, str) and _NAME.fullmatch(title) else _DEFAULT_NAME
    return {"type": "json_schema", "name": name, "description": None, "schema": schema, "strict": True}


def _type(fields: Fields) -> str:
    kind = fields.text("type")
    if kind not in ("text", "json_object", "json_schema"):
        fields.wrong("type", fields.raw("type"), _TYPES)
    return kind


def _schema(fields: Fields) -> str:
    name = fields.required_text("name")
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{fields.param('name')} must be 1 to 64 letters, digits, dashes and underscores, got {show(name)}",
            param=fields.param("name"),
        )
    fields.text("description")
    fields.flag("strict")  # the answer obeys the schema either way
    schema = fields.raw("schema")
    if schema is None:
        raise _missing(fields, "schema", "a JSON schema")
    if not isinstance(schema, dict):
        fields.wrong("schema", schema, "a JSON schema as an object")
    if _is_deep(schema):
        reason = f"is nested more than {MOST_LEVELS} levels deep"
        raise InvalidRequest(f"{fields.param('schema')} {reason}", param=fields.param("schema"))
    try:
        text = json.dumps({"title": name} | schema, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # such as 1e400, which is infinity to Python's parser
        reason = "holds a number that no 64-bit float can hold"
        raise InvalidRequest(f"{fields.param('schema')} {reason}", param=fields.param("schema")) from None
    return fields.writable("schema", text)


def _is_deep(value: Any) -> bool:
    """Whether it has more levels than MOST_LEVELS; takes any number of them."""
    level = [value]
    for _ in range(MOST_LEVELS):
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [inner for inner in chain.from_iterable(parts) if isinstance(inner, dict | list)]
    return bool(level)


def _missing(fields: Fields, name: str, what: str) -> InvalidRequest:
    param = fields.param(name)
    return InvalidRequest(f"{param} is required: {what}", code="missing_parameter", param=param)
