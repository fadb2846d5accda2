"""chDB for readers: one handle a query, read-only by the engine's own setting, bounded in time and memory.

A handle costs less than a millisecond and takes its settings and its database with it: no query sees another's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chdb import ChdbError
from chdb.state.sqlitelike import Connection

from infra.clickhouse.errors import ClickHouseBusy, ClickHouseFault
from infra.clickhouse.guard import inspect

DEFAULT_FORMAT = "TabSeparated"
_SETTING_NAME = re.compile(r"[A-Za-z_]\w{0,127}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may use. A client's own max_execution_time counts if it is shorter."""

    seconds: float = 60.0
    memory_bytes: int = 2_000_000_000
    result_bytes: int = 512_000_000
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Question:
    """One statement. format: of the answer, where the statement has no FORMAT clause of its own.

    parameters: values of `{name:Type}`, as text. settings: ClickHouse's, as far as they are not Limits.
    """

    text: str
    database: str = "headrace"
    format: str = DEFAULT_FORMAT
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer's bytes in `format`, and what it took to make them."""

    body: bytes
    format: str
    rows_read: int = 0
    bytes_read: int = 0
    seconds: float = 0.0


class ReadOnlyEngine:
    """Blocking; from any number of threads. Raises ClickHouseBusy where another process has the path open."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self._path = os.path.realpath(path)  # chDB compares paths as text
        self._limits = limits or Limits()
        try:
            # Without an open handle, the engine would start and stop around each query.
            self._open = Connection(self._path)
        except RuntimeError as error:
            raise ClickHouseBusy(path) from error

    def interrupt(self) -> None:
        """End every query that runs in this process, whoever asked: its caller gets a fault."""
        self._open.query("KILL QUERY WHERE 1 ASYNC")

    def close(self) -> None:
        self._open.close()

    def ask(self, question: Question) -> Answer:
        """Raises ClickHouseFault."""
        try:
            with Connection(self._path) as handle:
                for statement in self._settings(question.settings):
                    handle.query(statement)
                handle.query(f"USE {_identifier(question.database)}")
                canonical = handle.query(
                    "SELECT formatQuery({query:String})", "RawBLOB", params={"query": _escaped(question.text)}
                ).bytes()
                form = inspect(canonical.decode(errors="replace")).format or question.format
                result = handle.query(question.text, question.format, params=dict(question.parameters))
                return _answer(result, form)
        except (RuntimeError, ChdbError) as error:
            raise _fault(str(error)) from error

    def _settings(self, wanted: Mapping[str, str]) -> list[str]:
        """The client's first, then ours over them; `readonly` last, since nothing can be set after it."""
        limits = self._limits
        ours = {
            "max_execution_time": _shorter(wanted.get("max_execution_time"), limits.seconds),
            "timeout_overflow_mode": "throw",
            "max_memory_usage": limits.memory_bytes,
            "max_result_bytes": limits.result_bytes,
            "max_threads": limits.threads,
            "readonly": 1,
        }
        theirs = [
            f"SET {_setting_name(name)} = {_string(value)}"
            for name, value in {"session_timezone": "UTC", **wanted}.items()
            if name not in ours
        ]
        return [*theirs, *(f"SET {name} = {_string(str(value))}" for name, value in ours.items())]


def _answer(result: Any, form: str) -> Answer:
    return Answer(bytes(result.bytes()), form, result.rows_read(), result.bytes_read(), result.elapsed())


def _fault(text: str) -> ClickHouseFault:
    # A statement that does not parse is reported inside the one that we wrapped it in.
    return ClickHouseFault.parse(re.sub(r"\s*:? In scope SELECT formatQuery\(.*\)\. ", " ", text, flags=re.DOTALL))


def _shorter(wanted: str | None, limit: float) -> float:
    try:
        seconds = float(wanted or limit)
    except ValueError:
        return limit
    return seconds if 0 < seconds < limit else limit


def _setting_name(name: str) -> str:
    if not _SETTING_NAME.fullmatch(name):
        raise ClickHouseFault(115, "UNKNOWN_SETTING", f"Unknown setting {name!r}.")
    return name


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escaped(text: str) -> str:
    """As a parameter's value is written: in the escaping of TabSeparated."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _identifier(text: str) -> str:
    return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"
