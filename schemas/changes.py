"""What differs between two sets of schemas, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .avro_types import Array, Default, Field, Map, Record, Schema, Type, Union, parse, short_name, type_text


@dataclass(frozen=True, slots=True)
class Change:
    """path: an event, or a field of it such as `RequestSubmitted.messages[].role`."""

    path: str
    what: str


def changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> tuple[Change, ...]:
    """What is different in `new`: both hold parsed JSON by the event's name. Raises InvalidSchema."""
    return tuple(_changes(new, old))


def walk_fields(schema: Schema) -> Iterator[tuple[str, Field]]:
    """Every field with its path, outermost first; those of a type that is used several times, once."""
    seen: set[str] = set()

    def fields_in(type_: Type, path: str) -> Iterator[tuple[str, Field]]:
        match schema.follow(type_):
            case Union(branches):
                for branch in branches:
                    yield from fields_in(branch, path)
            case Array(items=inner):
                yield from fields_in(inner, f"{path}[]")
            case Map(values=inner):
                yield from fields_in(inner, f"{path}{{}}")
            case Record(full_name=full_name, fields=fields) if full_name not in seen:
                seen.add(full_name)
                for one in fields:
                    below = f"{path}.{one.name}"
                    yield below, one
                    yield from fields_in(one.type, below)

    return fields_in(schema.root, short_name(schema.root))


def _changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted(new.keys() | old.keys()):
        if name not in old:
            yield Change(name, "new event")
        elif name not in new:
            yield Change(name, "event removed")
        else:
            yield from _changes_of_event(name, new[name], old[name])


def _changes_of_event(name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Change]:
    attributes = sorted(key for key in new.keys() | old.keys() if key != "fields" and new.get(key) != old.get(key))
    if attributes:
        yield Change(name, ", ".join(attributes))
    now, before = dict(walk_fields(parse(new))), dict(walk_fields(parse(old)))
    for path, one in now.items():
        if path in before:
            yield from _changes_of_field(path, one, before[path])
        else:
            yield Change(path, f"new field: {type_text(one.type)}{_default_text(one.default, ' = ', '')}")
    for path in sorted(before.keys() - now.keys()):
        yield Change(path, "field removed")


def _changes_of_field(path: str, new: Field, old: Field) -> Iterator[Change]:
    if type_text(new.type) != type_text(old.type):
        yield Change(path, f"type: {type_text(old.type)} -> {type_text(new.type)}")
    if new.default != old.default:
        before, now = (_default_text(one.default, "", "none") for one in (old, new))
        yield Change(path, f"default: {before} -> {now}")
    if new.doc != old.doc:
        yield Change(path, "doc")


def _default_text(default: Default | None, prefix: str, nothing: str) -> str:
    return nothing if default is None else prefix + json.dumps(default.value)
