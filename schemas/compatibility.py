"""Whether events written with one schema can be read with another, and still mean the same.

`incompatibilities` follows the rules of Avro 1.12 ("Schema Resolution"). `full_incompatibilities` asks them in both
directions, which is what a log needs whose readers and writers are deployed one by one, and adds rules of our own for
changes that leave the bytes readable and change what they say.

Where libraries differ the stricter reading is taken, so that a change that passes here is safe with each of them:
named types match by full name or alias (the specification also lets unqualified names match), and a branch of a union
is chosen by exact name or type first, then by the first promotion that fits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .avro_defaults import unfit_defaults
from .avro_types import (
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    Map,
    NamedType,
    Primitive,
    Record,
    Schema,
    Type,
    Union,
    parse,
    short_name,
    type_text,
)

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class Rule(StrEnum):
    """Stable codes. The first eight are Avro's, the others ours."""

    TYPE_CHANGED = "type_changed"
    NAME_CHANGED = "name_changed"
    FIELD_WITHOUT_DEFAULT = "field_without_default"
    FIELD_AMBIGUOUS = "field_ambiguous"
    UNION_BRANCH_MISSING = "union_branch_missing"
    ENUM_SYMBOL_UNKNOWN = "enum_symbol_unknown"
    DEFAULT_UNFIT = "default_unfit"
    FIXED_SIZE_CHANGED = "fixed_size_changed"
    LOGICAL_TYPE_CHANGED = "logical_type_changed"
    DEFAULT_CHANGED = "default_changed"
    TEXT_AND_BYTES = "text_and_bytes"
    FIELD_RENAMED = "field_renamed"
    EVENT_REMOVED = "event_removed"
    TOPIC_REMOVED = "topic_removed"
    KEY_CHANGED = "key_changed"
    IDENTITY_CHANGED = "identity_changed"


class Breaks(StrEnum):
    """Who is hurt."""

    OLD_READERS = "old readers can't read new events"
    NEW_READERS = "new readers can't read old events"
    MEANING = "old and new readers understand an event differently"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """path: the field, such as `RequestSubmitted.messages[].role`; `[]` is an array's item, `{}` a map's value."""

    path: str
    rule: Rule
    message: str


@dataclass(frozen=True, slots=True)
class Break(Incompatibility):
    breaks: Breaks

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}: {self.breaks}: {self.message}"


def incompatibilities(reader: Any, writer: Any) -> tuple[Incompatibility, ...]:
    """What keeps a reader that has the schema `reader` from reading what was written with `writer`.

    Both are parsed JSON. Nothing: every value that `writer` allows can be read. Raises InvalidSchema.
    """
    return tuple(_resolve(parse(reader), parse(writer)).broken)


def full_incompatibilities(new: Any, old: Any) -> tuple[Break, ...]:
    """What breaks when `new` takes the place of `old` while readers and writers of both run, and in old logs.

    Raises InvalidSchema.
    """
    new_schema, old_schema = parse(new), parse(old)
    forward = _resolve(old_schema, new_schema)
    backward = _resolve(new_schema, old_schema)
    sides = (
        (Breaks.OLD_READERS, forward.broken),
        (Breaks.NEW_READERS, backward.broken),
        (Breaks.MEANING, [*_meaning(backward)]),
    )
    return tuple(Break(one.path, one.rule, one.message, side) for side, broken in sides for one in broken)


def _resolve(reader: Schema, writer: Schema) -> _Resolution:
    resolution = _Resolution(reader, writer)
    for path, message in unfit_defaults(reader):
        resolution.broken.append(Incompatibility(path, Rule.DEFAULT_UNFIT, message))
    resolution.resolve(reader.root, writer.root, short_name(writer.root))
    return resolution


@dataclass(slots=True)
class _Resolution:
    """One walk over two schemas side by side.

    broken: what can't be read. types, fields: what was matched with what, reader first, for the rules on meaning.
    """

    reader: Schema
    writer: Schema
    broken: list[Incompatibility] = field(default_factory=list)
    types: list[tuple[str, Definition, Definition]] = field(default_factory=list)
    fields: list[tuple[str, Field, Field]] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def resolve(self, reader: Type, writer: Type, path: str) -> None:
        read, written = self.reader.follow(reader), self.writer.follow(writer)
        if not isinstance(read, Union) and not isinstance(written, Union):
            self._resolve_plain(read, written, path)
            return
        readable = self._branches(self.reader, read)
        for branch in self._branches(self.writer, written):
            chosen = _choose(readable, branch)
            if chosen is None:
                self._break(
                    path, Rule.UNION_BRANCH_MISSING,
                    f"the writer may send {type_text(branch)} and the reader takes {type_text(read)}",
                )  # fmt: skip
            else:
                self._resolve_plain(chosen, branch, path)

    @staticmethod
    def _branches(schema: Schema, type_: Definition) -> list[Definition]:
        return [schema.follow(branch) for branch in type_.branches] if isinstance(type_, Union) else [type_]

    def _resolve_plain(self, reader: Definition, writer: Definition, path: str) -> None:
        self.types.append((path, reader, writer))
        match reader, writer:
            case Array(), Array():
                self.resolve(reader.items, writer.items, f"{path}[]")
            case Map(), Map():
                self.resolve(reader.values, writer.values, f"{path}{{}}")
            case (Record() | Enum() | Fixed(), Record() | Enum() | Fixed()) if type(reader) is type(writer):
                self._resolve_named(reader, writer, path)
            case _ if not _readable_as(reader, writer):
                self._break(path, Rule.TYPE_CHANGED, f"{type_text(writer)} can't be read as {type_text(reader)}")

    def _resolve_named(self, reader: NamedType, writer: NamedType, path: str) -> None:
        if not _same_name(reader, writer):
            self._break(path, Rule.NAME_CHANGED, f"the writer's {writer.full_name} is {reader.full_name} to the reader")
            return
        match reader, writer:
            case Record(), Record():
                self._resolve_records(reader, writer, path)
            case Enum(), Enum():
                self._resolve_enums(reader, writer, path)
            case Fixed(), Fixed() if reader.size != writer.size:
                self._break(
                    path, Rule.FIXED_SIZE_CHANGED, f"{writer.size} bytes are written and {reader.size} are read"
                )

    def _resolve_records(self, reader: Record, writer: Record, path: str) -> None:
        pair = (reader.full_name, writer.full_name)
        if pair in self._seen:
            return
        self._seen.add(pair)
        taken: dict[str, str] = {}
        for one in reader.fields:
            below = f"{path}.{one.name}"
            sources = [other for other in writer.fields if other.name == one.name or other.name in one.aliases]
            if len(sources) > 1:
                names = ", ".join(source.name for source in sources)
                self._break(below, Rule.FIELD_AMBIGUOUS, f"the reader's names for it fit several fields: {names}")
            elif sources and sources[0].name in taken:
                self._break(
                    below, Rule.FIELD_AMBIGUOUS,
                    f"the reader takes {sources[0].name} for both {taken[sources[0].name]} and {one.name}",
                )  # fmt: skip
            elif sources:
                taken[sources[0].name] = one.name
                self.fields.append((below, one, sources[0]))
                self.resolve(one.type, sources[0].type, below)
            elif one.default is None:
                self._break(
                    below, Rule.FIELD_WITHOUT_DEFAULT, "the writer does not send it and the reader has no default"
                )

    def _resolve_enums(self, reader: Enum, writer: Enum, path: str) -> None:
        unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if unknown and reader.default is None:
            self._break(path, Rule.ENUM_SYMBOL_UNKNOWN, f"the reader has no {', '.join(unknown)} and no default symbol")

    def _break(self, path: str, rule: Rule, message: str) -> None:
        self.broken.append(Incompatibility(path, rule, message))


def _choose(readable: Sequence[Definition], writer: Definition) -> Definition | None:
    """The branch that takes what is written: the exact one, or else the first that can."""
    exact = (branch for branch in readable if _is_exact(branch, writer))
    return next(exact, None) or next((branch for branch in readable if _readable_as(branch, writer)), None)


def _is_exact(reader: Definition, writer: Definition) -> bool:
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        return reader.name == writer.name
    if isinstance(reader, NamedType) and isinstance(writer, NamedType):
        return type(reader) is type(writer) and reader.full_name == writer.full_name
    return type(reader) is type(writer)


def _readable_as(reader: Definition, writer: Definition) -> bool:
    """Whether the two match at all; what is inside them may still differ too much."""
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        return reader.name == writer.name or reader.name in _PROMOTIONS.get(writer.name, ())
    if isinstance(reader, NamedType) and isinstance(writer, NamedType):
        return type(reader) is type(writer) and _same_name(reader, writer)
    return type(reader) is type(writer)


def _same_name(reader: NamedType, writer: NamedType) -> bool:
    return reader.full_name == writer.full_name or writer.full_name in reader.aliases


def _meaning(matched: _Resolution) -> Iterator[Incompatibility]:
    """What Avro reads without a complaint and differently; the reader is the new schema, the writer the old one."""
    for path, new, old in matched.types:
        yield from _meaning_of_type(path, new, old)
    for path, new_field, old_field in matched.fields:
        if new_field.name != old_field.name:
            yield Incompatibility(
                path, Rule.FIELD_RENAMED, f"old readers look for {old_field.name} and take its default, or fail"
            )
        elif new_field.default and old_field.default:
            now, before = new_field.default.value, old_field.default.value
            if not _same_value(now, before):
                yield Incompatibility(
                    path, Rule.DEFAULT_CHANGED, f"it was {json.dumps(before)} and is {json.dumps(now)}"
                )


def _meaning_of_type(path: str, new: Definition, old: Definition) -> Iterator[Incompatibility]:
    if isinstance(new, Union) or isinstance(old, Union):
        return
    if new.logical != old.logical:
        yield Incompatibility(
            path, Rule.LOGICAL_TYPE_CHANGED, f"it was {old.logical or 'none'} and is {new.logical or 'none'}"
        )
    if isinstance(new, Primitive) and isinstance(old, Primitive) and {new.name, old.name} == {"string", "bytes"}:
        yield Incompatibility(path, Rule.TEXT_AND_BYTES, f"it was {old.name} and is {new.name}: not all bytes are text")
    if isinstance(new, Enum) and isinstance(old, Enum) and new.default and old.default and new.default != old.default:
        yield Incompatibility(path, Rule.DEFAULT_CHANGED, f"unknown symbols were {old.default} and are {new.default}")


def _same_value(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are one number, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_value, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_value(one[key], other[key]) for key in one)
    return bool(one == other)
