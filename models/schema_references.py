"""References of a JSON schema that lead back to themselves, so that no answer which follows one would ever end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

Schema = dict[str, Any]

_BY_NAME: Final = ("$defs", "definitions", "properties", "patternProperties")
_IN_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_ALONE: Final = ("items", "additionalProperties")


def endless_reference(schema: Schema) -> str | None:
    """The first `$ref` to what no finite value satisfies, such as a node that must hold another node; None if all end.

    A schema ends when there is a value for it whose parts end: the least fixed point, as of a grammar's productive
    symbols. What this does not understand is taken to end.
    """
    parts = list(_parts(schema))
    endless = {id(part) for part in parts}
    grew = True
    while grew:
        grew = False
        for part in reversed(parts):  # mostly, what a part is made of stands behind it
            if id(part) in endless and _ends(part, schema, endless):
                endless.remove(id(part))
                grew = True
    return next((part["$ref"] for part in parts if isinstance(part.get("$ref"), str) and id(part) in endless), None)


def _parts(schema: Schema) -> Iterator[Schema]:
    """The schema and all schemas in it, outermost first."""
    waiting: list[Any] = [schema]
    for part in waiting:
        if not isinstance(part, dict):
            continue
        yield part
        waiting += [inner for name in _BY_NAME if isinstance(part.get(name), dict) for inner in part[name].values()]
        waiting += [inner for name in _IN_LISTS if isinstance(part.get(name), list) for inner in part[name]]
        waiting += [part.get(name) for name in _ALONE]


def _ends(part: Schema, root: Schema, endless: set[int]) -> bool:
    def ends(schema: Any) -> bool:
        return id(schema) not in endless

    if "enum" in part or "const" in part:
        return True
    reference = part.get("$ref")
    if isinstance(reference, str) and not ends(_target(reference, root)):
        return False
    if not all(map(ends, _list(part, "allOf"))):
        return False
    if any(_list(part, name) and not any(map(ends, part[name])) for name in ("anyOf", "oneOf")):
        return False
    kinds = part.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    held = {"object": _properties_held, "array": _items_held}
    return not kinds or any(kind not in held or all(map(ends, held[kind](part))) for kind in kinds)


def _properties_held(part: Schema) -> list[Any]:
    """The schemas of what an object must hold."""
    properties = part.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return [known[name] for name in _list(part, "required") if isinstance(name, str) and name in known]


def _items_held(part: Schema) -> list[Any]:
    """The schemas of what an array must hold."""
    least = part.get("minItems", 0)
    if not isinstance(least, int) or least <= 0:
        return []
    first = _list(part, "prefixItems")
    return first[:least] + ([part.get("items")] if least > len(first) else [])


def _list(part: Schema, name: str) -> list[Any]:
    found = part.get(name)
    return found if isinstance(found, list) else []


def _target(reference: str, root: Schema) -> Any:
    """What a JSON Pointer in a fragment (RFC 6901, section 6) names; None for any other reference."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for name in unquote(reference[1:]).split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
