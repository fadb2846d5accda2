"""Asking ClickHouse from a command: the server of HEADRACE_CLICKHOUSE_DSN, what `headrace up` serves, or chDB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from infra.clickhouse.engine import Answer, Limits, Question, ReadOnlyEngine
from infra.clickhouse.errors import ClickHouseFault, ClickHouseUnreachable, NothingRecorded, QueryFailed

_TIMEOUT = httpx.Timeout(connect=5.0, read=600.0, write=60.0, pool=5.0)


class ClickHouseAccess(Protocol):
    """Whoever answers questions."""

    def ask(self, question: Question) -> Answer:
        """Raises QueryFailed, ClickHouseUnreachable."""


def records(access: ClickHouseAccess, query: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of an answer as objects; 64-bit integers are integers."""
    settings = {"output_format_json_quote_64bit_integers": "0"}
    answer = access.ask(Question(query, format="JSONEachRow", parameters=parameters, settings=settings))
    return [json.loads(line) for line in answer.body.splitlines() if line]


@contextmanager
def clickhouse_access(dsn: str | None, running_url: str | None, path: Path) -> Iterator[ClickHouseAccess]:
    """The first there is: the server of the DSN; the interface that runs at `running_url`; chDB on `path`.

    Raises ClickHouseUnreachable, ClickHouseBusy, NothingRecorded.
    """
    if url := dsn or running_url:
        with HttpAccess.at(url) as access:
            yield access
    else:
        if not path.is_dir():
            raise NothingRecorded(path)
        engine = ReadOnlyEngine(path, Limits(seconds=600.0, threads=0))
        try:
            yield _Embedded(engine)
        finally:
            engine.close()


@dataclass(frozen=True, slots=True)
class _Embedded:
    engine: ReadOnlyEngine

    def ask(self, question: Question) -> Answer:
        try:
            return self.engine.ask(question)
        except ClickHouseFault as fault:
            raise QueryFailed(fault) from fault


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """One connection to one HTTP interface. where: the address without its password."""

    client: httpx.Client
    where: str

    @classmethod
    @contextmanager
    def at(cls, url: str) -> Iterator[HttpAccess]:
        """`url` is http(s) or clickhouse(s), with user, password and database where they are needed."""
        parts = urlsplit(url)
        scheme = {"clickhouse": "http", "clickhouses": "https"}.get(parts.scheme, parts.scheme)
        host = parts.netloc.rpartition("@")[2]
        bare = urlunsplit((scheme, host, "/", "", ""))
        headers = {}
        if parts.username:
            headers["X-ClickHouse-User"] = unquote(parts.username)
        if parts.password:
            headers["X-ClickHouse-Key"] = unquote(parts.password)
        # Settings of the environment (proxies, netrc) are not for this: the address is what the user wrote.
        with httpx.Client(base_url=bare, headers=headers, timeout=_TIMEOUT, trust_env=False) as client:
            yield cls(client, bare)

    def ask(self, question: Question) -> Answer:
        parameters = {
            "database": question.database,
            "default_format": question.format,
            **{f"param_{name}": value for name, value in question.parameters.items()},
            **question.settings,
        }
        try:
            response = self.client.post("/", params=parameters, content=question.text.encode())
        except httpx.HTTPError as error:
            raise ClickHouseUnreachable(self.where, str(error) or type(error).__name__) from error
        if response.status_code != 200 or "X-ClickHouse-Exception-Code" in response.headers:
            raise QueryFailed(ClickHouseFault.parse(response.text))
        return Answer(response.content, response.headers.get("X-ClickHouse-Format", question.format))
