"""Which migrations a database still needs. Pure.

A versioned migration (`0001_facts.sql`) is applied once and never changes afterwards. A repeatable one
(`repeat_01_requests.sql`, a view) is applied again whenever its text changes, after all versioned ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streams.sink.errors import MigrationError

_COMMENT_LINE = re.compile(r"^\s*--.*\n", re.MULTILINE)
_END_OF_STATEMENT = re.compile(r";\s*\n")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. Its statements end with a semicolon at the end of a line; each must be harmless to run twice."""

    name: str
    text: str

    @property
    def is_repeatable(self) -> bool:
        return self.name.startswith("repeat_")

    @property
    def statements(self) -> tuple[str, ...]:
        bare = _COMMENT_LINE.sub("", self.text + "\n")
        return tuple(part.strip() for part in _END_OF_STATEMENT.split(bare) if part.strip())

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def pending(migrations: Iterable[Migration], applied: Mapping[str, str]) -> list[Migration]:
    """What is to be applied now, in order. `applied`: name -> checksum of what the database has had, newest first.

    Raises MigrationError where a versioned migration changed after it was applied, or the database has one that these
    do not know.
    """
    known = {migration.name: migration for migration in migrations}
    for name, checksum in applied.items():
        if name.startswith("repeat_"):
            continue
        if name not in known:
            raise MigrationError(f"the database was made by a newer Headrace (it has {name}): update this one")
        if known[name].checksum != checksum:
            raise MigrationError(
                f"{name} is not what this database was made with: use the Headrace that made it, or another "
                f"data directory (the log fills a new database again)"
            )
    wanted = [m for m in known.values() if applied.get(m.name) != m.checksum]
    return sorted(wanted, key=lambda migration: (migration.is_repeatable, migration.name))
