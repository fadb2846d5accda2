"""How the text of one environment variable becomes a value: one small parser for each kind of setting.

A parser returns the value or raises ValueError with what is allowed, as a phrase that follows "is not usable:".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
Parser = Callable[[str], T]

_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


class HoldsSecret(ValueError):
    """What is wrong with a value that must not be repeated."""


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What is known of a setting besides its value. `variable` is empty for HEADRACE_<FIELD NAME>."""

    parse: Parser[Any]
    about: str
    default_shown: str
    variable: str = ""
    secret: bool = False


def setting(
    default: T, parse: Parser[T], about: str, *, shown: str | None = None, variable: str = "", secret: bool = False
) -> T:
    """A dataclass field that is read from the environment. `shown` is the default in words, for the documentation."""
    info = SettingInfo(parse, about, str(default) if shown is None else shown, variable, secret)
    return field(default=default, metadata={"setting": info})


def text(value: str) -> str:
    if not value:
        raise ValueError("it must not be empty")
    return value


def path(value: str) -> Path:
    return Path(text(value)).expanduser().absolute()


def whole_number(low: int, high: int) -> Parser[int]:
    def parse(value: str) -> int:
        if not value.isdecimal() or not low <= int(value) <= high:
            raise ValueError(f"it must be a whole number from {low} to {high}")
        return int(value)

    return parse


def number(low: float, high: float) -> Parser[float]:
    def parse(value: str) -> float:
        refused = ValueError(f"it must be a number from {low:g} to {high:g}")
        try:
            parsed = float(value)
        except ValueError:
            raise refused from None
        if not low <= parsed <= high:  # refuses nan too
            raise refused
        return parsed

    return parse


def one_of(*choices: str) -> Parser[str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        return value

    return parse


def servers(value: str) -> str:
    """`host:port`, or several with commas between them."""
    for server in value.split(","):
        match = _HOST_AND_PORT.fullmatch(server.strip())
        if match is None or not 0 < int(match[1]) < 65_536:
            raise ValueError("it must be host:port, or several of them with commas between them")
    return ",".join(server.strip() for server in value.split(","))


def url(*schemes: str) -> Parser[str]:
    def parse(value: str) -> str:
        refused = ValueError(f"it must be an address that starts with {' or '.join(f'{s}://' for s in schemes)}")
        try:
            parts = urlsplit(value)
        except ValueError:
            raise refused from None
        if parts.scheme not in schemes or not (parts.netloc or parts.path):
            raise refused
        return value

    return parse


def url_without_user(*schemes: str) -> Parser[str]:
    """An address that may be shown to anyone."""
    parse_url = url(*schemes)

    def parse(value: str) -> str:
        if "@" in urlsplit(parse_url(value)).netloc:
            raise HoldsSecret("it must not hold a user or a password, for which there are settings of their own")
        return value

    return parse


port = whole_number(0, 65_535)
partitions = whole_number(1, 1_024)
