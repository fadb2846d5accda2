"""Durations on the command line: 90s, 15m, 1h, 7d."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Duration(click.ParamType):
    """Seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,6})([smhd])", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration such as 90s, 15m, 1h or 7d", param, ctx)
        return int(found[1]) * _UNITS[found[2]]
