"""ClickHouse's HTTP interface in front of chDB: enough for clickhouse-connect, curl, Grafana and BI tools, read-only.

Nobody is asked for a password, so it listens on loopback; there it answers only requests that name loopback as their
host, because a web page could otherwise read it through a name of its own that resolves to 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from infra.clickhouse.engine import Answer, Question, ReadOnlyEngine
from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.http_request import read_request
from infra.clickhouse.http_status import content_type, http_status

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MAX_BODY_BYTES = 4 * 1024 * 1024


class QueryDesk:
    """Lets `running` queries at the engine at once and `waiting` wait; the next one is refused, and may come again."""

    def __init__(self, engine: ReadOnlyEngine, *, running: int = 4, waiting: int = 32) -> None:
        self._engine = engine
        self._places = asyncio.Semaphore(running)
        self._most = running + waiting
        self._here = 0

    async def ask(self, question: Question) -> Answer:
        """Raises ClickHouseFault."""
        if self._here >= self._most:
            raise ClickHouseFault(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many queries: try again.")
        self._here += 1
        try:
            async with self._places:
                return await asyncio.to_thread(self._engine.ask, question)
        finally:
            self._here -= 1


def create_app(desk: QueryDesk, *, only_loopback_names: bool) -> Starlette:
    """`/` answers statements, `/ping` says Ok."""

    async def ping(request: Request) -> Response:
        return PlainTextResponse("Ok.\n")

    async def query(request: Request) -> Response:
        if only_loopback_names and _host_name(request) not in _LOOPBACK_NAMES:
            return PlainTextResponse("This address answers only as localhost.\n", status_code=403)
        query_id = ""
        try:
            asked = read_request(request.query_params, request.headers, await _body(request))
            query_id = asked.query_id or str(uuid.uuid4())
            if not asked.question.text.strip():
                return PlainTextResponse("Ok.\n")
            return _answered(await desk.ask(asked.question), query_id)
        except ClickHouseFault as fault:
            return _failed(fault, query_id)

    async def nothing_here(request: Request, _: Exception) -> Response:
        return PlainTextResponse(f"There is no handle {request.url.path}\n", status_code=404)

    routes = [
        Route("/", query, methods=["GET", "POST"]),
        Route("/ping", ping),
        Route("/replicas_status", ping),
    ]
    handlers: dict[int | type[Exception], Callable[[Request, Exception], object]] = {404: nothing_here}
    return Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > _MAX_BODY_BYTES:
            raise ClickHouseFault(223, "QUERY_IS_TOO_LARGE", f"The request has more than {_MAX_BODY_BYTES} bytes.")
        parts.append(part)
    return b"".join(parts)


def _host_name(request: Request) -> str:
    host = request.headers.get("host", "")
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def _answered(answer: Answer, query_id: str) -> Response:
    summary = {
        "read_rows": str(answer.rows_read), "read_bytes": str(answer.bytes_read), "written_rows": "0",
        "written_bytes": "0", "elapsed_ns": str(int(answer.seconds * 1e9)),
    }  # fmt: skip
    headers = {
        "X-ClickHouse-Query-Id": query_id,
        "X-ClickHouse-Format": answer.format,
        "X-ClickHouse-Timezone": "UTC",
        "X-ClickHouse-Server-Display-Name": "headrace",
        "X-ClickHouse-Summary": json.dumps(summary, separators=(",", ":")),
        "Content-Type": content_type(answer.format),
    }
    return Response(answer.body, headers=headers)


def _failed(fault: ClickHouseFault, query_id: str) -> Response:
    headers = {"X-ClickHouse-Exception-Code": str(fault.number), "X-ClickHouse-Query-Id": query_id}
    return PlainTextResponse(fault.text + "\n", status_code=http_status(fault), headers=headers)
