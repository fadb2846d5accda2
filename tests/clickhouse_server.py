"""A ClickHouse server to write to, for tests: HTTP in front of chDB in this process, with inserts, that can go down.

The product's own interface refuses writes, so what the sink does with a server needs this one.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import uvicorn
from chdb import ChdbError
from chdb.state.sqlitelike import Connection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.http_request import HttpQuery, read_request
from infra.clickhouse.interface import GuestServer
from infra.runtime.ports import free_port
from tests.timing import within


class ClickHouseDouble:
    """Serves the path at `dsn` between `start` and `stop`, any number of times; the port stays the same.

    refuse: answer inserts with this error of ClickHouse's instead, such as NOT_ENOUGH_SPACE; refused counts them.
    lose_answers: take this many inserts and say 502, as a proxy does whose server went away.
    """

    def __init__(self, path: Path) -> None:
        self.refuse: ClickHouseFault | None = None
        self.refused = 0
        self.lose_answers = 0
        self._path = str(path.resolve())
        self._port = free_port()
        self._open = Connection(self._path)
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None

    @property
    def dsn(self) -> str:
        return f"http://default:secret@127.0.0.1:{self._port}/headrace"

    def start(self) -> None:
        up = threading.Event()
        config = uvicorn.Config(
            Starlette(routes=[Route("/", self._answer, methods=["GET", "POST"])]), host="127.0.0.1", port=self._port,
            lifespan="off", log_config=None, log_level="critical",
        )  # fmt: skip
        self._server = server = GuestServer(config, up.set)

        self._thread = threading.Thread(target=asyncio.run, args=(server.serve(),))
        self._thread.start()
        assert up.wait(within(20))

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            self._server = self._thread = None

    def close(self) -> None:
        self.stop()
        self._open.close()

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        headers = dict(request.headers)
        if headers.pop("content-encoding", "") == "lz4":
            body = lz4.frame.decompress(body)
        is_insert = body.startswith(b"INSERT")
        statement, _, data = body.partition(b"\n") if is_insert else (body, b"", b"")
        asked = read_request({"database": "default", **request.query_params}, headers, statement)
        try:
            if is_insert and self.refuse is not None:
                self.refused += 1
                raise self.refuse
            answer = await asyncio.to_thread(self._ask, asked, data)
        except ClickHouseFault as fault:
            code = {"X-ClickHouse-Exception-Code": str(fault.number)}
            return PlainTextResponse(fault.text, status_code=500, headers=code)
        if is_insert and self.lose_answers:
            self.lose_answers -= 1
            return PlainTextResponse("Bad gateway", status_code=502)
        return Response(answer, headers={"X-ClickHouse-Format": asked.question.format})

    def _ask(self, asked: HttpQuery, data: bytes) -> bytes:
        question = asked.question
        try:
            with Connection(self._path) as handle:
                handle.query(f"USE {question.database}")
                for name, value in question.settings.items():
                    handle.query(f"SET {name} = '{value}'")
                if not data:
                    answer: Any = handle.query(question.text, question.format, params=dict(question.parameters))
                    return bytes(answer.bytes())
                with handle.send_insert(question.text.removesuffix(" FORMAT Native"), "Native") as insert:
                    insert.append(data)
                    insert.finish()
                return b""
        except (ChdbError, RuntimeError) as error:
            raise ClickHouseFault.parse(str(error)) from error
