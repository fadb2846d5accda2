"""Opening ClickHouse: chDB in this process, or a server. The one place where its errors become ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from streams.sink.errors import ClickHouseUnavailable, ClickHouseUnusable

DATABASE = "headrace"
# CANNOT_OPEN_FILE with BAD_ARGUMENTS: another process owns the path. Then: password, user, access, database.
_UNUSABLE_CODES = frozenset({36, 76, 192, 193, 194, 497, 516})
_SEND_RECEIVE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class EmbeddedClickHouse:
    """chDB on this directory. One process can have it open, and a process can have one."""

    path: Path

    def __str__(self) -> str:
        return f"chDB at {self.path}"


@dataclass(frozen=True, slots=True)
class ClickHouseServer:
    """A server, as http(s)://user:password@host:port/. Our tables are in the database `headrace`, whatever it names."""

    dsn: str

    def __str__(self) -> str:
        return "ClickHouse at " + re.sub(r"//[^@/]*@", "//", self.dsn)


ClickHouseAddress = EmbeddedClickHouse | ClickHouseServer


def open_client(address: ClickHouseAddress, *, database: str = "default") -> Client:
    """A client that several threads may use. Close it.

    database: what unqualified names mean. `headrace` is there once the sink has run.
    Raises ClickHouseUnusable (another process owns the path, wrong password) or ClickHouseUnavailable.
    """
    with translated(address):
        if isinstance(address, EmbeddedClickHouse):
            address.path.mkdir(parents=True, exist_ok=True)
            return clickhouse_connect.get_client(interface="chdb", path=str(address.path), database=database)
        return clickhouse_connect.get_client(
            dsn=re.sub(r"^clickhouse(s?)://", r"http\1://", address.dsn),
            database=database,
            send_receive_timeout=_SEND_RECEIVE_TIMEOUT_S,
            autogenerate_session_id=False,
        )


@contextmanager
def translated(address: ClickHouseAddress) -> Iterator[None]:
    """Errors of the block as ClickHouseUnavailable or ClickHouseUnusable, in one line, with ClickHouse's own words."""
    try:
        yield
    except (ClickHouseError, OSError, RuntimeError) as error:
        message = first_line(str(error))
        code = getattr(error, "code", None) or code_in(message)
        kind = ClickHouseUnusable if code in _UNUSABLE_CODES else ClickHouseUnavailable
        raise kind(f"{address}: {message}") from error


def code_in(message: str) -> int | None:
    """ClickHouse's number of the error, if its message has one."""
    match = re.search(r"Code: (\d+)\b", message)
    return int(match[1]) if match else None


def first_line(text: str, limit: int = 500) -> str:
    """The message without its trailers, short enough for one line of a log."""
    lines = text.strip().splitlines() or ["no message"]
    return lines[0] if len(lines[0]) <= limit else lines[0][:limit] + "..."
