"""The HTTP interface as its clients use it: clickhouse-connect, curl and BI tools, on chDB in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import clickhouse_connect
import httpx
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from infra.clickhouse.engine import Answer, Limits, Question, ReadOnlyEngine
from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.http import QueryDesk
from infra.clickhouse.interface import HttpInterface
from infra.errors import PortTaken, PortUnusable
from streams.sink.clickhouse import EmbeddedClickHouse
from tests.clickhouse_world import world
from tests.request_story import RECEIVED_US, Story
from tests.timing import within


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clickhouse")


@pytest.fixture(scope="module")
def port(path: Path) -> Iterator[int]:
    """Of an interface on a thread, over a database with one request."""
    ports: list[int] = []
    up = threading.Event()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        interface = HttpInterface(port=0, limits=Limits(seconds=2.0), listening=ports.append)
        async with interface(EmbeddedClickHouse(path)):
            up.set()
            await stop.wait()

    with world(path) as found:
        found.put(Story().whole())
        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        assert up.wait(within(30))
        yield ports[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def http(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=within(30), trust_env=False) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["body", "form"])
def client(port: int, request: pytest.FixtureRequest) -> Iterator[Client]:
    found = clickhouse_connect.get_client(host="127.0.0.1", port=port, form_encode_query_params=request.param)
    yield found
    found.close()


def test_clickhouse_connect_reads_rows_with_types_and_server_side_parameters(client: Client) -> None:
    query = "SELECT tenant, total_ms, received_at FROM requests WHERE tenant = {tenant:String} AND attempts = {n:Int32}"
    row = client.query(query, parameters={"tenant": "acme", "n": 1}).first_row
    assert row == ("acme", 40.1, datetime.fromtimestamp(RECEIVED_US / 1e6, UTC).replace(tzinfo=None))
    assert client.query("SELECT {text:String}", parameters={"text": "it's\n\ta\\b"}).first_row == ("it's\n\ta\\b",)
    assert client.command("SELECT 42") == 42
    assert client.ping()


def test_clickhouse_connect_reads_frames(client: Client) -> None:
    frame = client.query_df("SELECT index, text FROM token_events ORDER BY index")
    assert frame["index"].tolist() == [0, 1, 2, 3]
    assert client.query_arrow("SELECT count() AS n FROM events").to_pylist() == [{"n": 9}]


def test_writes_are_refused_with_clickhouses_own_error(client: Client) -> None:
    for command in ("INSERT INTO events (offset) VALUES (1)", "DROP TABLE events", "SYSTEM SHUTDOWN"):
        with pytest.raises(DatabaseError, match="READONLY"):
            client.command(command)
    with pytest.raises(DatabaseError, match="READONLY"):
        client.insert("events", [[1]], column_names=["offset"])


def test_a_plain_address_says_ok(http: httpx.Client) -> None:
    assert [http.get(path).text for path in ("/", "/ping")] == ["Ok.\n", "Ok.\n"]
    assert http.get("/nope").status_code == 404


@pytest.mark.parametrize(
    ("parameters", "content_type", "body"),
    [
        ({}, "text/tab-separated-values; charset=UTF-8", "acme\t9\n"),
        ({"default_format": "CSVWithNames"}, "text/csv; charset=UTF-8; header=present", '"tenant","n"\n"acme",9\n'),
        ({"default_format": "JSONEachRow"}, "application/x-ndjson; charset=UTF-8", '{"tenant":"acme","n":9}\n'),
    ],
)
def test_the_answer_has_the_format_that_was_asked_for(
    http: httpx.Client, parameters: dict[str, str], content_type: str, body: str
) -> None:
    settings = {"output_format_json_quote_64bit_integers": "0", "query_id": "mine"}
    query = b"SELECT tenant, count() AS n FROM events GROUP BY tenant"
    response = http.post("/", params=parameters | settings, content=query)
    assert (response.status_code, response.text, response.headers["content-type"]) == (200, body, content_type)
    assert response.headers["x-clickhouse-query-id"] == "mine"
    assert response.headers["x-clickhouse-timezone"] == http.post("/", content=b"SELECT timezone()").text.strip()
    assert '"read_rows":' in response.headers["x-clickhouse-summary"]


def test_a_format_clause_wins_and_is_named(http: httpx.Client) -> None:
    response = http.get("/", params={"query": "SELECT 1 AS x FORMAT JSONCompact", "default_format": "CSV"})
    assert response.json()["data"] == [[1]]
    assert response.headers["x-clickhouse-format"] == "JSONCompact"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELECT nope", 404, "47"),
        ("SELECT * FROM nope", 404, "60"),
        ("SELEC 1 FROM", 400, "62"),
        ("SELECT 1; SELECT 2", 400, "62"),
        ("SELECT {x:Int8}", 500, "456"),
        ("SELECT 1 INTO OUTFILE '/dev/null'", 500, "164"),
        ("SELECT /* */ `file`('/etc/hostname')", 500, "164"),
        ("SELECT 1 SETTINGS readonly = 0", 500, "164"),
        ("SELECT sum(sipHash64(number)) FROM numbers(1000000000000)", 408, "159"),
    ],
)
def test_errors_come_as_clickhouse_gives_them(http: httpx.Client, query: str, status: int, code: str) -> None:
    response = http.post("/", content=query.encode())
    assert (response.status_code, response.headers["x-clickhouse-exception-code"]) == (status, code)
    assert response.text.startswith(f"Code: {code}. DB::Exception: ")


def test_settings_are_taken_but_never_loosen_the_limits(http: httpx.Client) -> None:
    def setting(name: str, **parameters: str) -> str:
        response = http.post("/", params=parameters, content=f"SELECT toString(getSetting('{name}'))".encode())
        return response.text.strip()

    assert setting("max_block_size", max_block_size="77") == "77"
    assert setting("readonly", readonly="0") == "1"
    assert setting("max_execution_time", max_execution_time="9999") == "2"
    assert setting("max_execution_time", max_execution_time="1") == "1"
    assert setting("max_block_size") != "77"  # nothing of one query is left for the next


def test_a_page_with_a_name_of_its_own_for_this_address_is_refused(http: httpx.Client) -> None:
    assert http.get("/?query=SELECT%201", headers={"host": "evil.example:8123"}).status_code == 403
    assert http.get("/?query=SELECT%201", headers={"host": "localhost:1"}).status_code == 200


def test_a_statement_past_the_limit_is_refused(http: httpx.Client) -> None:
    response = http.post("/", content=b"SELECT '" + b"x" * 5_000_000 + b"'")
    assert (response.status_code, response.headers["x-clickhouse-exception-code"]) == (413, "223")


async def test_past_its_places_the_desk_refuses_instead_of_queueing_without_bound() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(ReadOnlyEngine):
        def __init__(self) -> None:
            """No database."""

        def ask(self, question: Question) -> Answer:
            entered.set()
            go_on.wait(within(30))
            return Answer(b"", question.format)

    desk = QueryDesk(Slow(), running=1, waiting=1)
    asked = [asyncio.create_task(desk.ask(Question("SELECT 1"))) for _ in range(2)]
    await asyncio.to_thread(entered.wait, within(30))
    with pytest.raises(ClickHouseFault, match="Too many queries"):
        await desk.ask(Question("SELECT 1"))
    go_on.set()
    await asyncio.gather(*asked)
    assert (await desk.ask(Question("SELECT 1"))).body == b""


async def test_a_taken_port_and_a_foreign_address_are_clear_errors(port: int) -> None:
    with pytest.raises(PortTaken, match=f"Port {port} on 127"):
        async with HttpInterface(port=port)(EmbeddedClickHouse(None)):  # type: ignore[arg-type]
            pass
    with pytest.raises(PortUnusable, match="HEADRACE_CLICKHOUSE_PORT"):
        async with HttpInterface(host="192.0.2.1", port=0)(EmbeddedClickHouse(None)):  # type: ignore[arg-type]
            pass


async def test_whoever_asks_when_the_interface_ends_is_interrupted(port: int, path: Path) -> None:
    engine = ReadOnlyEngine(path)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=within(60), trust_env=False) as client:
        asked = asyncio.create_task(
            client.post("/", content="SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")
        )
        running = "SELECT count() FROM system.processes WHERE query LIKE 'SELECT sum(sip%'"
        async with asyncio.timeout(within(20)):
            while (await client.post("/", content=running)).text != "1\n":
                pass
        await asyncio.to_thread(engine.interrupt)
        response = await asked
        assert response.headers["x-clickhouse-exception-code"] == "394"
    engine.close()
