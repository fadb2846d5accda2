"""JSON Schema to the grammar that an answer is held to.

One way to compile, so that what the validate stage lets through is what an engine obeys: llguidance, strict (a keyword
of JSON Schema that it can't follow is refused, not passed over; a word of no vocabulary is an annotation) and without
what a schema's own `x-guidance` would change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from models.errors import JsonSchemaInvalidError
from models.schema_references import endless_reference

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

MAX_JSON_SCHEMA_BYTES: Final = 64 * 1024
"""Longest schema in UTF-8."""

_OPTIONS: Final[JsonCompileOptions] = {
    "lenient": False,
    "coerce_one_of": False,
    "item_separator": ",",
    "key_separator": ":",
    # A line break with its indentation, or a few spaces: left free, small models fill their token limit with it.
    "whitespace_pattern": r"\r?\n( {0,64}|\t{0,16})| {1,8}",
}
_REASON_CHARS: Final = 300


def grammar_of(json_schema: str) -> str:
    """llguidance's grammar for texts that obey this schema. Raises JsonSchemaInvalidError for what is no JSON object.

    Whether llguidance can follow it, `check_json_schema` says.
    """
    return LLMatcher.grammar_from_json_schema(_parsed(json_schema), overrides=_OPTIONS)


def parser_limits() -> LLParserLimits:
    """What compiling one schema, and each step through it, may cost: llguidance's own bounds; errors without dumps."""
    return LLParserLimits(verbose_errors=False)


def schema_objection(json_schema: str) -> str | None:
    """Why no answer can be held to this schema; None if one can.

    Length bounds neither the time nor the memory that this takes: fifteen patterns in an `allOf` are 400 bytes and half
    a minute. Whoever takes schemas from strangers asks `models.schema_judge`.
    """
    size = len(json_schema.encode(errors="surrogatepass"))
    if size > MAX_JSON_SCHEMA_BYTES:
        return f"it has {size} bytes, and may have {MAX_JSON_SCHEMA_BYTES}; shorten it"
    try:
        grammar = grammar_of(json_schema)
    except JsonSchemaInvalidError as error:
        return str(error)
    if (endless := endless_reference(_parsed(json_schema))) is not None:
        return f"what {endless[:_REASON_CHARS]!r} refers to must hold itself, so no answer to it ends"
    # Its lexer is built too, over single bytes: what is too large to compile shows here, whatever the vocabulary is.
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=parser_limits())
    return " ".join(matcher.get_error().split())[:_REASON_CHARS] if matcher.is_error() else None


def _parsed(json_schema: str) -> dict[str, Any]:
    try:
        schema = json.loads(json_schema, parse_constant=_not_json)
        json_schema.encode()
    except UnicodeEncodeError as error:
        raise JsonSchemaInvalidError(f"it holds half of a surrogate pair at character {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise JsonSchemaInvalidError(f"it is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise JsonSchemaInvalidError("it must be a JSON object")
    return schema


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
