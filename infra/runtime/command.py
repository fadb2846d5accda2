"""What to start: a program with its arguments, environment and working folder, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Command:
    """One program to start as a process of its own.

    environment: exactly what it sees; nothing is inherited unless it is in here.
    """

    arguments: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
