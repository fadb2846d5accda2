"""From a record as fastavro reads it to an event's fields.

Tuples are lists there, and nested records dictionaries. Avro's int has 32 bits, and fastavro reads any: that is checked
here, so that an event which was read can be written.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from . import events
from .writing import INT_MAX, INT_MIN

Convert = Callable[[Any], Any]
Check = Callable[[Mapping[str, Any]], None]
_set = object.__setattr__
_new = object.__new__


def from_avro_of(record: Mapping[str, Any]) -> tuple[tuple[str, Convert], ...]:
    """(field, conversion) for each field that fastavro does not give as the event has it."""
    found = {field["name"]: _converter(field["type"]) for field in record["fields"]}
    return tuple((name, convert) for name, convert in found.items() if convert is not None)


def own_maps_of(record: Mapping[str, Any]) -> tuple[tuple[str, Convert], ...]:
    """A copy of each map: where the writer has no such field, fastavro gives every event the same default."""
    fields = record["fields"]
    maps = [field["name"] for field in fields if isinstance(field["type"], Mapping) and field["type"]["type"] == "map"]
    return tuple((name, dict) for name in maps)


def int_check_of(record: Mapping[str, Any]) -> Check | None:
    """Raises OverflowError, with the field's name, where an int of this record has more than 32 bits.

    None where there is none to be checked. Nested records are checked where they are converted.
    """
    plain = [field["name"] for field in record["fields"] if field["type"] == "int"]
    optional = [field["name"] for field in record["fields"] if field["type"] == ["null", "int"]]
    arrays = [field["name"] for field in record["fields"] if _is_array_of_ints(field["type"])]
    if not plain + optional + arrays:
        return None
    get = itemgetter(*plain) if len(plain) > 1 else lambda fields: [fields[name] for name in plain]
    pack = struct.Struct(f"{len(plain)}i").pack

    def check(fields: Mapping[str, Any]) -> None:
        # This runs for every event: packing a few numbers is the quickest look at all of them.
        try:
            pack(*get(fields))
            for name in arrays:
                values = fields[name]
                if len(values) < len(_PACKS):
                    _PACKS[len(values)](*values)
                else:
                    array("i", values)
        except (struct.error, OverflowError):
            raise OverflowError(f"{_misfit(fields, plain, arrays)} holds what is no int of 32 bits") from None
        for name in optional:
            value = fields[name]
            if value is not None and not _fits(value):
                raise OverflowError(f"{name} holds what is no int of 32 bits")

    return check


_PACKS = tuple(struct.Struct(f"{count}i").pack for count in range(33))


def _misfit(fields: Mapping[str, Any], plain: list[str], arrays: list[str]) -> str:
    return next((name for name in plain if not _fits(fields[name])), None) or next(
        name for name in arrays if not all(map(_fits, fields[name]))
    )


def _fits(value: Any) -> bool:
    return isinstance(value, int) and INT_MIN <= value <= INT_MAX


def _is_array_of_ints(avro_type: Any) -> bool:
    return isinstance(avro_type, Mapping) and avro_type["type"] == "array" and avro_type["items"] == "int"


def _converter(avro_type: Any) -> Convert | None:
    if isinstance(avro_type, Mapping) and avro_type["type"] == "record":
        return _record_converter(avro_type)
    if isinstance(avro_type, Mapping) and avro_type["type"] == "array":
        item = _converter(avro_type["items"])
        return tuple if item is None else lambda values: tuple(map(item, values))
    return None


def _record_converter(record: Mapping[str, Any]) -> Convert:
    cls = getattr(events, record["name"].rpartition(".")[2])
    from_avro, check = from_avro_of(record), int_check_of(record)

    def from_record(fields: dict[str, Any]) -> Any:
        if check is not None:
            check(fields)
        for name, convert in from_avro:
            fields[name] = convert(fields[name])
        value = _new(cls)
        _set(value, "__dict__", fields)
        return value

    return from_record
