"""A schema's JSON as typed values with full names, so that rules about schemas need not know how JSON spells them.

After the Avro 1.12 specification ("Schema Declaration", "Names", "Aliases"). A named type stands where it is defined
and is a Reference everywhere else, so a schema that holds itself is a finite value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import ContractError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class InvalidSchema(ContractError):
    """JSON that is no Avro schema: an unknown or doubled name, a missing attribute, a union in a union."""

    code = "invalid_schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """logical: the logical type with its parameters, as text: `timestamp-micros`, `decimal(9, 2)`."""

    logical: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive(_Shape):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Array(_Shape):
    items: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(_Shape):
    values: Type


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A named type that is defined elsewhere in the same schema."""

    full_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named(_Shape):
    full_name: str
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enum(_Named):
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(_Named):
    size: int


@dataclass(frozen=True, slots=True)
class Default:
    """A default, as JSON. It stands in a value of its own because null is a default too."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: Type
    aliases: tuple[str, ...] = ()
    default: Default | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(_Named):
    fields: tuple[Field, ...]
    doc: str = ""


NamedType = Record | Enum | Fixed
Definition = Primitive | Array | Map | Union | NamedType
Type = Definition | Reference


@dataclass(frozen=True, slots=True)
class Schema:
    """A whole schema. named: every named type in it, by full name."""

    root: Type
    named: Mapping[str, NamedType]

    def follow(self, type_: Type) -> Definition:
        """The type itself, with a reference replaced by what it names."""
        return self.named[type_.full_name] if isinstance(type_, Reference) else type_


def parse(json_schema: Any) -> Schema:
    """The schema in this parsed JSON. Raises InvalidSchema. What its defaults are worth is for avro_defaults to say."""
    parser = _Parser()
    try:
        return Schema(parser.type_of(json_schema, ""), parser.named)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"this is no Avro schema: {type(error).__name__}: {error}") from error


def type_text(type_: Type) -> str:
    """For people: `long (timestamp-micros)`, `null | string`, `array of headrace.v1.Message`."""
    match type_:
        case Union(branches):
            return " | ".join(type_text(branch) for branch in branches)
        case Array(items=inner):
            return f"array of {type_text(inner)}"
        case Map(values=inner):
            return f"map of {type_text(inner)}"
        case Fixed(full_name=name, size=size):
            text = f"{name} (fixed, {size} bytes)"
        case Primitive(name=name) | Reference(full_name=name) | Record(full_name=name) | Enum(full_name=name):
            text = name
    logical = None if isinstance(type_, Reference) else type_.logical
    return text if logical is None else f"{text} ({logical})"


def short_name(type_: Type) -> str:
    """The name without its namespace; for a type without a name, what it is."""
    if isinstance(type_, Primitive):
        return type_.name
    if isinstance(type_, Array | Map | Union):
        return type(type_).__name__.lower()
    return type_.full_name.rpartition(".")[2]


@dataclass(slots=True)
class _Parser:
    """named: what is defined so far. begun: the same and what is being defined, which may name itself."""

    named: dict[str, NamedType] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def type_of(self, node: Any, namespace: str) -> Type:
        if isinstance(node, list):
            return _union([self.type_of(branch, namespace) for branch in node])
        if isinstance(node, str):
            return self._by_name(node, namespace)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.type_of(kind, namespace)
        logical = _logical_text(node)
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._define(kind, node, namespace, logical)
            case "array":
                return Array(items=self.type_of(node["items"], namespace), logical=logical)
            case "map":
                return Map(values=self.type_of(node["values"], namespace), logical=logical)
            case _ if kind in PRIMITIVES:
                return Primitive(name=kind, logical=logical)
            case _:
                return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name=name)
        full_name = _full_name(name, namespace)
        if full_name not in self.begun:
            raise InvalidSchema(f"no type {full_name!r} is defined before it is named")
        return Reference(full_name)

    def _define(self, kind: str, node: Mapping[str, Any], namespace: str, logical: str | None) -> NamedType:
        full_name = _full_name(node["name"], node.get("namespace", namespace))
        if full_name in self.begun:
            raise InvalidSchema(f"the type {full_name!r} is defined twice")
        self.begun.add(full_name)
        inner = full_name.rpartition(".")[0]
        aliases = frozenset(_full_name(alias, inner) for alias in node.get("aliases", ()))
        defined: NamedType
        if kind == "enum":
            symbols, default = tuple(node["symbols"]), node.get("default")
            if default is not None and default not in symbols:
                raise InvalidSchema(f"the default {default!r} of {full_name!r} is none of its symbols")
            defined = Enum(full_name=full_name, aliases=aliases, logical=logical, symbols=symbols, default=default)
        elif kind == "fixed":
            defined = Fixed(full_name=full_name, aliases=aliases, logical=logical, size=node["size"])
        else:
            fields = tuple(self._field_of(one, inner) for one in node["fields"])
            if len({one.name for one in fields}) < len(fields):
                raise InvalidSchema(f"a field of {full_name!r} is there twice")
            defined = Record(
                full_name=full_name, aliases=aliases, logical=logical, fields=fields, doc=node.get("doc", "")
            )
        self.named[full_name] = defined
        return defined

    def _field_of(self, node: Mapping[str, Any], namespace: str) -> Field:
        return Field(
            name=node["name"],
            type=self.type_of(node["type"], namespace),
            aliases=tuple(node.get("aliases", ())),
            default=Default(node["default"]) if "default" in node else None,
            doc=node.get("doc", ""),
        )


def _union(branches: list[Type]) -> Union:
    if any(isinstance(branch, Union) for branch in branches):
        raise InvalidSchema("a union stands in a union")
    kinds = [short_name(one) if isinstance(one, Primitive | Array | Map) else one.full_name for one in branches
             if not isinstance(one, Union)]  # fmt: skip
    if len(set(kinds)) < len(kinds):
        raise InvalidSchema(f"a union has two branches of one kind: {', '.join(kinds)}")
    return Union(tuple(branches))


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical_text(node: Mapping[str, Any]) -> str | None:
    logical = node.get("logicalType")
    if logical == "decimal":
        return f"decimal({node.get('precision')}, {node.get('scale', 0)})"
    return None if logical is None else str(logical)
