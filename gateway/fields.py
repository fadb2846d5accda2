"""Taking typed values out of a JSON object, with errors that name the field and the value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from gateway.errors import InvalidRequest

_SHOWN_CHARS = 80


def parse_json_object(data: bytes | str) -> dict[str, Any]:
    """The JSON object in these bytes. Raises InvalidRequest: not UTF-8, not JSON, or not an object.

    Refuses what Python's parser lets through: NaN and Infinity, and lone surrogates, which no encoder takes later.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=_not_json)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the body is not UTF-8: {error.reason} at byte {error.start}", code="invalid_json"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {type_name(value)}", code="invalid_json")
    return value


class Fields:
    """One JSON object, read field by field; null counts as absent. Names are given as a client writes them."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def raw(self, name: str) -> Any:
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.wrong(name, value, "a string")
        return self.writable(name, value)

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise InvalidRequest(
                f"{self.param(name)} is required: a non-empty string", code="missing_parameter", param=self.param(name)
            )
        return value

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.wrong(name, value, "true or false")
        return value

    def integer(self, name: str, bits: int) -> int | None:
        """An integer that fits into this many bits, sign included. Its range is for the model to judge."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(name, value, "an integer")
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            self.wrong(name, value, f"an integer of {bits} bits")
        return value

    def number(self, name: str) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(name, value, "a number")
        try:
            converted = float(value)
        except OverflowError:
            converted = math.inf
        if not math.isfinite(converted):
            self.wrong(name, value, "a finite number")
        return converted

    def inner(self, name: str) -> Fields | None:
        """An object in this one."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.wrong(name, value, "an object")
        return Fields(value, f"{self.param(name)}.")

    def only(self, *names: str) -> None:
        """Raises InvalidRequest (unknown_parameter) for the first field beside these."""
        for name in self._values:
            if name not in names:
                shown = self.param(show(name)[1:-1])
                raise InvalidRequest(f"unknown parameter {shown!r}", code="unknown_parameter", param=shown)

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A string or a list of at most `most` strings."""
        value = self._values.get(name)
        if value is None:
            return ()
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or len(items) > most or not all(isinstance(item, str) for item in items):
            self.wrong(name, value, f"a string or a list of at most {most} strings")
        return tuple(self.writable(name, item) for item in items)

    def labels(self, name: str) -> dict[str, str]:
        """OpenAI's metadata: at most 16 strings by strings, of at most 64 and 512 characters."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self.wrong(name, value, "an object of strings")
        if len(value) > 16 or any(len(key) > 64 or len(item) > 512 for key, item in value.items()):
            self.wrong(name, value, "at most 16 pairs, keys of at most 64 and values of at most 512 characters")
        return {self.writable(name, key): self.writable(name, item) for key, item in value.items()}

    def param(self, name: str) -> str:
        return f"{self._path}{name}"

    def wrong(self, name: str, value: Any, expected: str) -> NoReturn:
        """Raises InvalidRequest for this field."""
        raise InvalidRequest(
            f"{self.param(name)} must be {expected}, got {show(value)}", code="invalid_type", param=self.param(name)
        )

    def writable(self, name: str, value: str) -> str:
        """The text itself. Raises InvalidRequest for one that no encoder takes."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.wrong(name, value, "text without lone surrogates")
        return value


def show(value: Any) -> str:
    """The value as JSON in ASCII, cut short."""
    try:
        text = json.dumps(value)
    except RecursionError:  # a little less deep than what was parsed, as the stack is higher by now
        return f"{type_name(value)} that is nested too deeply"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({type_name(value)})"


def type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
