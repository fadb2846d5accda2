"""The dataclasses and the published .avsc files say the same."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from importlib import resources
from typing import Any

import pytest

from schemas import events
from schemas.codec import published_schema
from schemas.events import EVENT_TYPES, Event

AVRO_TO_PYTHON: Mapping[str, type[Any]] = {"string": str, "int": int, "long": int, "double": float, "bytes": bytes}


def python_type(avro: Any) -> Any:
    """The annotation that mirrors an Avro type."""
    if isinstance(avro, str):
        return AVRO_TO_PYTHON[avro]
    if isinstance(avro, list):
        null, other = avro
        assert null == "null", "optional fields name null first, so that null is the default"
        return python_type(other) | None
    if avro["type"] == "array":
        return types.GenericAlias(tuple, (python_type(avro["items"]), ...))
    if avro["type"] == "map":
        return Mapping[str, python_type(avro["values"])]  # type: ignore[misc]
    if avro["type"] == "record":
        assert_mirrors(getattr(events, avro["name"]), avro)
        return getattr(events, avro["name"])
    return python_type(avro["type"])


def assert_mirrors(cls: type[Any], avro: Mapping[str, Any]) -> None:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    assert [field.name for field in fields] == [field["name"] for field in avro["fields"]]
    for field, published in zip(fields, avro["fields"], strict=True):
        assert hints[field.name] == python_type(published["type"]), f"{cls.__name__}.{field.name}"
        assert published.get("doc"), f"{cls.__name__}.{field.name} has no doc"
        default: Any = dataclasses.MISSING
        if field.default is not dataclasses.MISSING:
            default = list(field.default) if isinstance(field.default, tuple) else field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        assert default == published.get("default", dataclasses.MISSING), f"{cls.__name__}.{field.name}"


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_each_dataclass_mirrors_its_schema(event_type: type[Event]) -> None:
    avro = published_schema(event_type)
    assert avro["namespace"] == "headrace.v1"
    assert avro["name"] == event_type.__name__
    assert avro["doc"] == event_type.__doc__
    assert_mirrors(event_type, avro)


def test_each_schema_file_has_a_dataclass() -> None:
    files = {path.name for path in resources.files("schemas").joinpath("avro").iterdir()}
    assert files == {f"{event_type.__name__}.avsc" for event_type in EVENT_TYPES}


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_times_are_declared_as_timestamps_and_named_with_their_unit(event_type: type[Event]) -> None:
    for field in published_schema(event_type)["fields"]:
        avro = field["type"][1] if isinstance(field["type"], list) else field["type"]
        is_time = isinstance(avro, dict) and avro.get("logicalType") == "timestamp-micros"
        assert is_time == field["name"].endswith("at_us"), field["name"]
