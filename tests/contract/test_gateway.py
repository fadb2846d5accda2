"""A real gateway over a real log, driven by the official `openai` package and by raw sockets."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from eventlog.admin import LogAdmin
from eventlog.clock import now_ms, now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry_reader import RegistryReader
from gateway.settings import GatewaySettings
from infra.runtime.broker import BrokerChoice
from infra.runtime.ports import free_port
from schemas.events import AdapterRegistered, RequestSubmitted, ResponseDelivered
from schemas.ids import new_request_id, request_id_of, response_id_of
from schemas.topics import lifecycle_topic, requests_topic
from tests.brokers import started_broker
from tests.contract.gateway_world import (
    RunningGateway,
    Step,
    World,
    echo,
    register_tenant,
    running_gateway,
)
from tests.gateway_events import MODEL, admitted, failed, finished, rejected, started, submitted, tokens
from tests.timing import eventually, within

MESSAGES: Any = [{"role": "user", "content": "one two three"}]


@asynccontextmanager
async def dialled(gateway: RunningGateway, key: str, **options: Any) -> AsyncIterator[ClientConnection]:
    """A client that keeps what it has not looked at (`max_queue`), so that it may leave in the middle."""
    settings: dict[str, Any] = {"max_queue": None, **options}
    async with connect(gateway.ws, additional_headers={"authorization": f"Bearer {key}"}, **settings) as connection:
        yield connection


async def say(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


async def hear(connection: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(within(20)):
        event: dict[str, Any] = json.loads(await connection.recv())
    return event


async def hear_until(connection: ClientConnection, *types: str) -> list[dict[str, Any]]:
    """Events of responses up to one of these types, without what belongs to the connection."""
    events = []
    while True:
        event = await hear(connection)
        if "sequence_number" in event:
            events.append(event)
        if event["type"] in types:
            return events


async def hear_until_closed(connection: ClientConnection) -> tuple[list[dict[str, Any]], int, str]:
    """Events of responses, and the code and reason of the close frame behind them."""
    events: list[dict[str, Any]] = []
    with suppress(ConnectionClosed):
        while True:
            event = await hear(connection)
            if "sequence_number" in event:
                events.append(event)
    return events, connection.close_code or 0, connection.close_reason or ""


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["sequence_number"] for event in events]


# --- the official package ------------------------------------------------------------------------------------------


def test_responses_create_gives_the_whole_answer(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="chat", input="one two three", metadata={"k": "v"}, user="u")
    assert isinstance(Response.model_validate(answer.to_dict()), Response)
    assert (answer.output_text, answer.status, answer.metadata) == ("one two three ", "completed", {"k": "v"})
    assert answer.usage is not None
    assert answer.usage.total_tokens == 6
    assert client.responses.retrieve(answer.id).output_text == answer.output_text


def test_responses_stream_gives_every_event_in_order(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="chat", input="one two three", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "one two three "
    assert events[-1].type == "response.completed"


def test_the_packages_own_stream_helper_works(client: openai.OpenAI) -> None:
    with client.responses.stream(model="chat", input="one two three") as stream:
        assert stream.get_final_response().output_text == "one two three "


async def test_chat_completions_plain_and_streamed(async_client: openai.AsyncOpenAI) -> None:
    plain = await async_client.chat.completions.create(model="chat", messages=MESSAGES, max_completion_tokens=3)
    assert (plain.choices[0].message.content, plain.choices[0].finish_reason) == ("one two three ", "length")
    chunks = [
        chunk
        async for chunk in await async_client.chat.completions.create(
            model="chat", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    ]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "one two three "
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3


def test_completions_plain_and_streamed(client: openai.OpenAI) -> None:
    assert client.completions.create(model="chat", prompt="one two").choices[0].text == "one two "
    pieces = [part.choices[0].text for part in client.completions.create(model="chat", prompt="one two", stream=True)]
    assert "".join(pieces) == "one two "


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert {"chat", "chat@v1"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("chat@v1").owned_by == "headrace"
    with pytest.raises(openai.NotFoundError, match="no model 'none'"):
        client.models.retrieve("none")


def test_a_tenants_adapters_are_listed_for_nobody_else(here: World, client: openai.OpenAI) -> None:
    mark = secrets.token_hex(4)
    names = [f"own-{mark}@v1", f"all-{mark}@v1"]
    with LogAdmin(here.profile, here.settings.topics) as admin:
        reader = RegistryReader(here.profile, client_id="test")
        registry = reader.start()
        reader.close()
        for name, tenant in zip(names, (here.tenant, None), strict=True):
            adapter = AdapterRegistered(adapter=name, at_us=now_us(), model_version=MODEL, location="/a", tenant=tenant)
            admin.register_adapter(adapter, registry)
    eventually(lambda: set(names) <= {model.id for model in client.models.list()}, "the gateway knows the adapters")
    found = client.models.retrieve(names[0]).to_dict()
    assert (found["parent"], found["root"], found["versions"]) == (MODEL, MODEL, [MODEL])
    assert client.models.retrieve(MODEL).to_dict()["parent"] is None
    with openai.OpenAI(base_url=f"{here.gateway.http}/v1", api_key=here.stranger_key, max_retries=0) as stranger:
        assert [model.id for model in stranger.models.list() if mark in model.id] == [names[1]]
        with pytest.raises(openai.NotFoundError, match=f"no model '{names[0]}'"):
            stranger.models.retrieve(names[0])


def test_errors_are_the_packages_own(here: World, client: openai.OpenAI) -> None:
    here.upstream.script_for |= {
        "none": lambda request: [rejected(request, 404, "not_found_error", "model_not_found")],
        "busy": lambda request: [rejected(request, 429, "rate_limit_error", "requests_per_minute", 2500)],
        "full": lambda request: [rejected(request, 503, "overloaded_error", "no_capacity", 100)],
        "broken": lambda request: [admitted(request), started(request), failed(request)],
        "late": lambda request: [admitted(request), started(request), finished(request, 0, "timeout")],
    }
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as not_found:
            client.responses.create(model="none", input="x", stream=stream)
        assert not_found.value.code == "model_not_found"
        request_id = not_found.value.response.headers["x-request-id"]
        assert request_of(here, response_id_of(request_id)).model == "none", "explain can be asked about a refusal"
        with pytest.raises(openai.RateLimitError) as limited:
            client.chat.completions.create(model="busy", messages=MESSAGES, stream=stream)
        assert limited.value.response.headers["retry-after"] == "3"
        with pytest.raises(openai.InternalServerError) as overloaded:
            client.completions.create(model="full", prompt="x", stream=stream)
        assert (overloaded.value.status_code, overloaded.value.type) == (503, "overloaded_error")
        with pytest.raises(openai.BadRequestError) as wrong:
            client.responses.create(model="chat", input="x", temperature="hot", stream=stream)  # type: ignore[call-overload]
        assert wrong.value.param == "temperature"
        with pytest.raises(openai.UnprocessableEntityError):
            client.responses.create(model="chat", input="x", previous_response_id="resp_1", stream=stream)
    with pytest.raises(openai.InternalServerError, match="the engine failed"):
        client.responses.create(model="broken", input="x")
    with pytest.raises(openai.InternalServerError) as late:
        client.responses.create(model="late", input="x")
    assert late.value.status_code == 504
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="hr_wrong").responses.create(model="chat", input="x")


def test_a_failure_amid_a_stream_ends_it_with_an_event(here: World, client: openai.OpenAI) -> None:
    here.upstream.script_for["halfway"] = lambda request: [
        admitted(request), started(request), *tokens(request, ["a"]), failed(request, 1),
    ]  # fmt: skip
    events = list(client.responses.create(model="halfway", input="x", stream=True))
    assert events[-1].type == "response.failed"
    with pytest.raises(openai.APIError, match="the engine failed"):
        list(client.chat.completions.create(model="halfway", messages=MESSAGES, stream=True))


def test_background_then_look_then_cancel(here: World, client: openai.OpenAI) -> None:
    gate = threading.Event()
    here.upstream.script_for["waits"] = lambda request: [
        admitted(request), started(request), *tokens(request, ["a ", "b "]), gate, finished(request, 2),
    ]  # fmt: skip
    made = client.responses.create(model="waits", input="x", background=True)
    assert made.status == "queued"
    with client.responses.retrieve(made.id, stream=True, starting_after=4) as stream:
        first = next(iter(stream))
    assert (first.type, first.sequence_number) == ("response.output_text.delta", 5)
    ended = client.responses.cancel(made.id)
    assert (ended.status, ended.output_text) == ("cancelled", "a b ")
    assert client.responses.cancel(made.id).status == "cancelled"
    assert request_id_of(made.id) in {cancel.request_id for cancel in here.upstream.cancels}


# --- plain HTTP ----------------------------------------------------------------------------------------------------


def test_headers_tell_the_request_and_what_is_left_of_the_quota(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", json={"model": "chat", "input": "x"})
    assert answer.headers["x-request-id"] == request_id_of(answer.json()["id"])
    assert answer.headers["x-ratelimit-limit-requests"] == "60"
    assert answer.headers["x-ratelimit-remaining-tokens"] == "8936"
    assert answer.headers["x-ratelimit-reset-tokens"] == "427ms"


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("POST", "/v1/responses", b"{", 400, "invalid_json"),
        ("POST", "/v1/responses", b"\xff\xfe", 400, "invalid_json"),
        ("POST", "/v1/responses", b"", 400, "invalid_json"),
        ("POST", "/v1/chat/completions", b"[]", 400, "invalid_json"),
        ("POST", "/v1/completions", b'{"model":"chat","prompt":"x","odd":1}', 400, "unknown_parameter"),
        ("GET", "/v1/responses/nonsense", b"", 404, "response_not_found"),
        ("GET", "/v1/responses/resp_01a22aa23be879d7be571e421b520002", b"", 404, "response_not_found"),
        ("POST", "/v1/responses/resp_x/cancel", b"", 404, "response_not_found"),
        ("GET", "/nowhere", b"", 404, "path_not_found"),
        ("DELETE", "/v1/models", b"", 405, "method_not_allowed"),
        ("GET", "/v1/responses", b"", 405, "method_not_allowed"),
    ],
)
def test_every_error_has_one_shape(
    http: httpx.Client, method: str, path: str, content: bytes, status: int, code: str
) -> None:
    answer = http.request(method, path, content=content)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert set(error) == {"type", "code", "message", "param", "request_id"}
    assert error["request_id"] == answer.headers["x-request-id"]
    assert http.get("/healthz").status_code == 200


def test_a_body_over_the_limit_is_refused_announced_or_not(here: World, http: httpx.Client) -> None:
    size = here.gateway.settings.max_body_bytes + 1
    chunks = (b"x" * 65536 for _ in range(size // 65536 + 1))
    for content in (b"x" * size, chunks):
        answer = http.post("/v1/responses", content=content)
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")
    assert http.post("/v1/responses", json={"model": "chat", "input": "x"}).status_code == 200


def test_a_request_that_no_record_of_the_log_holds_is_too_large_and_not_to_be_tried_again(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", json={"model": "chat", "input": "x " * 500_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert "retry-after" not in answer.headers


def test_another_tenants_response_is_not_found(here: World, client: openai.OpenAI) -> None:
    made = client.responses.create(model="chat", input="secret")
    with pytest.raises(openai.NotFoundError):
        client.with_options(api_key=here.stranger_key).responses.retrieve(made.id)


def test_a_deadline_header_reaches_the_request(here: World, http: httpx.Client) -> None:
    body = {"model": "chat", "input": "x"}
    answer = http.post("/v1/responses", json=body, headers={"x-headrace-deadline-ms": "5000"})
    request = request_of(here, answer.json()["id"])
    assert request.deadline_at_us == request.received_at_us + 5_000_000
    for wrong in ("0", "-1", "soon", "1e3", "9" * 30):
        refused = http.post("/v1/responses", json=body, headers={"x-headrace-deadline-ms": wrong})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x-headrace-deadline-ms")


def test_last_event_id_resumes_a_stream(http: httpx.Client) -> None:
    made = http.post("/v1/responses", json={"model": "chat", "input": "one two"}).json()
    answer = http.get(f"/v1/responses/{made['id']}?stream=true", headers={"last-event-id": "8"})
    assert [line for line in answer.text.splitlines() if line.startswith("id:")] == ["id: 9", "id: 10"]
    for wrong in ("x", "-2", "11"):
        refused = http.get(f"/v1/responses/{made['id']}?stream=true&starting_after={wrong}")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "starting_after")


def test_an_idle_stream_is_kept_open_with_comments(here: World) -> None:
    gate = threading.Event()
    here.upstream.script_for["idle"] = lambda request: [admitted(request), gate, *echo(request)[1:]]
    body = {"model": "idle", "input": "x", "stream": True}
    with (
        running_gateway(replace(here.settings, gateway_id="heartbeat", heartbeat_seconds=0.05)) as gateway,
        httpx.Client(headers={"authorization": f"Bearer {here.key}"}, timeout=within(30)) as http,
        http.stream("POST", f"{gateway.http}/v1/responses", json=body) as answer,
    ):
        lines = []
        for line in answer.iter_lines():
            lines.append(line)
            if lines.count(": still here") == 2:
                gate.set()
    assert "event: response.completed" in lines


def test_health_readiness_metrics_and_the_page(http: httpx.Client) -> None:
    http.post("/v1/responses", json={"model": "chat", "input": "x"})
    assert http.get("/healthz").text == "ok\n"
    assert http.get("/readyz").text == "ready\n"
    metrics = http.get("/metrics").text
    assert 'headrace:http_requests_total{route="/v1/responses",status="200"}' in metrics
    assert 'headrace:generation_tokens_total{model_name="chat@v1"}' in metrics
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "Headrace" in page.text


# --- WebSocket -----------------------------------------------------------------------------------------------------


async def test_many_responses_share_one_socket(here: World) -> None:
    async with dialled(here.gateway, here.key) as connection:
        for number in range(20):
            text = " ".join([f"w{number}"] * (number + 1))
            await say(connection, type="response.create", model="chat", input=text, event_id=f"e{number}")
        events: dict[str, list[dict[str, Any]]] = {}
        name_of: dict[str, str] = {}
        while sum(group[-1]["type"] == "response.completed" for group in events.values()) < 20:
            event = await hear(connection)
            if "sequence_number" in event:
                events.setdefault(event["response_id"], []).append(event)
            if event["type"] == "response.created":
                name_of[event["event_id"]] = event["response_id"]
    for number in range(20):
        group = events[name_of[f"e{number}"]]
        assert numbers(group) == list(range(len(group)))
        assert group[-1]["response"]["output"][0]["content"][0]["text"] == f"w{number} " * (number + 1)


async def test_garbage_is_answered_and_the_socket_goes_on(here: World) -> None:
    async with dialled(here.gateway, here.key) as connection:
        for garbage in ("{", "[1]", b"\x00\x01", '{"type":"nope"}', '{"type":"response.create"}'):
            await connection.send(garbage)
            assert (await hear(connection))["type"] == "error"
        await say(connection, type="response.resume", response_id="resp_x", event_id="r")
        missing = await hear(connection)
        assert (missing["status"], missing["event_id"], missing["error"]["code"]) == (404, "r", "response_not_found")
        await say(connection, type="ping")
        assert (await hear(connection))["type"] == "pong"
        await say(connection, type="response.create", model="chat", input="still fine")
        assert (await hear_until(connection, "response.completed"))[-1]["response"]["status"] == "completed"


async def test_a_rejection_is_a_failed_response(here: World) -> None:
    here.upstream.script_for["busy"] = lambda request: [rejected(request, 429, "rate_limit_error", "tokens", 9)]
    async with dialled(here.gateway, here.key) as connection:
        await say(connection, type="response.create", model="busy", input="x")
        events = await hear_until(connection, "response.failed")
    assert [event["type"] for event in events] == ["response.created", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "tokens"


async def test_an_oversized_message_closes_with_1009(here: World) -> None:
    small = replace(here.settings, gateway_id="small", max_body_bytes=1000)
    with running_gateway(small) as gateway:
        async with dialled(gateway, here.key) as connection:
            await connection.send("x" * 1000)
            assert (await hear(connection))["type"] == "error"
            await connection.send("x" * 1001)
            assert (await hear_until_closed(connection))[1] == 1009


async def test_who_has_no_key_is_refused_before_the_upgrade(here: World) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(here.gateway.ws)
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body or b"")["error"]["type"] == "authentication_error"
    async with connect(f"{here.gateway.ws}?api_key={here.key}") as connection:
        await say(connection, type="ping")
        assert (await hear(connection))["type"] == "pong"
    offered: Any = ["headrace.v1", f"headrace.api-key.{here.key}"]
    async with connect(here.gateway.ws, subprotocols=offered) as connection:
        assert connection.subprotocol == "headrace.v1"


async def test_cancel_ends_a_response_and_a_disconnect_does_not(here: World) -> None:
    gate = threading.Event()
    here.upstream.script_for["waits"] = lambda request: [*echo(request)[:-1], gate, echo(request)[-1]]
    async with dialled(here.gateway, here.key) as connection:
        await say(connection, type="response.create", model="waits", input="a b")
        cancelled = (await hear(connection))["response_id"]
        await say(connection, type="response.cancel", response_id=cancelled)
        assert (await hear_until(connection, "response.cancelled"))[-1]["response"]["usage"]["output_tokens"] == 2
        await say(connection, type="response.create", model="waits", input="c d")
        left = (await hear(connection))["response_id"]
    gate.set()
    async with dialled(here.gateway, here.key) as connection:
        await say(connection, type="response.resume", response_id=left, starting_after=0)
        events = await hear_until(connection, "response.completed")
    assert numbers(events) == list(range(1, len(events) + 1))
    assert request_id_of(left) not in {cancel.request_id for cancel in here.upstream.cancels}


async def test_a_resume_on_another_gateway_amid_the_answer_loses_and_repeats_nothing(here: World) -> None:
    gates = [threading.Event() for _ in range(3)]

    def script(request: RequestSubmitted) -> Iterator[Step]:
        yield admitted(request)
        yield started(request)
        for part, gate in enumerate(gates):
            yield from tokens(request, ["w "] * 50, index=50 * part, offset=100 * part)
            yield gate
        yield finished(request, 150)

    here.upstream.script_for["long"] = script
    with running_gateway(replace(here.settings, gateway_id="other")) as other:
        async with dialled(here.gateway, here.key) as connection:
            await say(connection, type="response.create", model="long", input="x")
            seen = [event for _ in range(21) if "sequence_number" in (event := await hear(connection))]
        response_id = seen[0]["response_id"]
        async with dialled(other, here.key) as connection:
            await say(connection, type="response.resume", response_id=response_id, starting_after=len(seen) - 1)
            seen += [await hear(connection) for _ in range(10)]
            gates[0].set()
            seen += [await hear(connection) for _ in range(50)]
        gates[1].set()
        async with dialled(here.gateway, here.key) as connection:
            await say(connection, type="response.resume", response_id=response_id, starting_after=len(seen) - 1)
            gates[2].set()
            seen += await hear_until(connection, "response.completed")
        async with dialled(other, here.key) as connection:
            await say(connection, type="response.resume", response_id=response_id)
            again = await hear_until(connection, "response.completed")
    assert numbers(seen) == list(range(len(seen)))
    assert len(seen) == 5 + 150 + 4
    assert again == seen


async def test_a_slow_client_is_closed_with_its_cursor_and_a_fast_one_goes_on(here: World) -> None:
    words = 2000
    gate = threading.Event()
    here.upstream.script_for["flood"] = lambda request: [
        admitted(request), started(request), gate, *tokens(request, ["x" * 400] * words), finished(request, words),
    ]  # fmt: skip
    limits = replace(
        here.settings, gateway_id="strict", max_unsent_bytes=65536, slow_grace_seconds=0.3, send_buffer_bytes=16384
    )
    slow_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    slow_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    with running_gateway(limits) as gateway:
        slow_socket.setblocking(False)
        await asyncio.get_running_loop().sock_connect(slow_socket, ("127.0.0.1", gateway.settings.port))
        async with (
            dialled(gateway, here.key, sock=slow_socket, max_queue=1) as slow,
            dialled(gateway, here.key) as fast,
        ):
            await say(fast, type="response.create", model="flood", input="x")
            response_id = (await hear(fast))["response_id"]
            await say(slow, type="response.resume", response_id=response_id)
            heard = [(await hear(slow))["sequence_number"]]
            gate.set()
            whole = await hear_until(fast, "response.completed")
            # From there on, reading helps it no more.
            given_up = "headrace:slow_clients_closed_total 1.0"
            await asyncio.to_thread(
                eventually, lambda: given_up in httpx.get(f"{gateway.http}/metrics").text, "it is given up on", 20
            )
            events, code, reason = await hear_until_closed(slow)
            heard += numbers(events)
            assert code == 3008
            cursor = json.loads(reason)
            assert (cursor["response_id"], cursor["starting_after"]) == (response_id, heard[-1])
            assert heard == list(range(len(heard)))
            assert len(heard) < words
        assert numbers(whole)[-1] == words + 8
        async with dialled(gateway, here.key) as back:
            await say(back, type="response.resume", response_id=response_id, starting_after=cursor["starting_after"])
            rest = await hear_until(back, "response.completed")
        assert heard + numbers(rest) == list(range(words + 9))


async def test_a_stop_closes_sockets_with_1012_and_the_response_goes_on_elsewhere(here: World) -> None:
    gate = threading.Event()
    here.upstream.script_for["restart"] = lambda request: [*echo(request)[:-1], gate, echo(request)[-1]]
    with running_gateway(replace(here.settings, gateway_id="restarting")) as gateway:
        async with dialled(gateway, here.key) as connection:
            await say(connection, type="response.create", model="restart", input="a b")
            seen = await hear_until(connection, "response.in_progress")
            stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
            events, code, reason = await hear_until_closed(connection)
            await stopping
    seen += events
    assert code == 1012
    assert json.loads(reason)["starting_after"] == seen[-1]["sequence_number"]
    gate.set()
    async with dialled(here.gateway, here.key) as connection:
        await say(connection, type="response.resume", response_id=seen[0]["response_id"], starting_after=len(seen) - 1)
        seen += await hear_until(connection, "response.completed")
    assert numbers(seen) == list(range(len(seen)))


def test_a_stop_ends_streams_and_tells_waiting_requests_where_to_look(here: World) -> None:
    gate = threading.Event()
    here.upstream.script_for["restart"] = lambda request: [*echo(request)[:-1], gate, echo(request)[-1]]
    headers = {"authorization": f"Bearer {here.key}"}
    with (
        running_gateway(replace(here.settings, gateway_id="restarting")) as gateway,
        httpx.Client(base_url=gateway.http, headers=headers, timeout=within(30)) as http,
        ThreadPoolExecutor(1) as pool,
    ):
        body = {"model": "restart", "input": "a b"}
        with http.stream("POST", "/v1/responses", json={**body, "stream": True}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "id: 0"
            plain = pool.submit(http.post, "/v1/responses", json=body)
            while len(here.upstream.requests_for("restart")) < 2:
                gate.wait(0.01)
            gateway.stop()
            assert "event: response.completed" not in list(lines)
        refused = plain.result()
    gate.set()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "service_restart")
    waiting = here.upstream.requests_for("restart")[-1]
    assert response_id_of(waiting.request_id) in refused.json()["error"]["message"]


def test_a_response_that_another_service_asked_for_is_found(here: World, client: openai.OpenAI) -> None:
    here.upstream.script_for["elsewhere"] = lambda request: []
    request = submitted(
        secrets.randbits(58), tenant=here.tenant, model="elsewhere", source="billing", endpoint="events"
    )  # fmt: skip
    request = replace(request, request_id=new_request_id(now_ms=now_ms(), partition=1, entropy=secrets.randbits(58)))
    with EventProducer(here.profile, client_id="billing") as producer:
        producer.send(requests_topic(here.tenant), request, key=request.request_id)
    response_id = response_id_of(request.request_id)
    assert client.responses.retrieve(response_id).status == "queued"
    for event in echo(request):
        assert not isinstance(event, threading.Event)
        here.upstream.write(event)
    with client.responses.retrieve(response_id, stream=True) as stream:
        assert [event.type for event in stream][-1] == "response.completed"


def test_what_was_swept_away_is_read_back_and_followed_again(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.service.SWEEP_SECONDS", 0.02)
    gate = threading.Event()
    here.upstream.script_for["slow"] = lambda request: [*echo(request)[:-1], gate, echo(request)[-1]]
    forgetful = replace(here.settings, gateway_id="forgetful", linger_seconds=0.0)
    with (
        running_gateway(forgetful) as gateway,
        openai.OpenAI(base_url=f"{gateway.http}/v1", api_key=here.key, max_retries=0) as client,
    ):
        for _ in range(2):
            made = client.responses.create(model="chat", input="one two")
            gate.wait(0.3)
            assert client.responses.retrieve(made.id).output_text == "one two "
        unfinished = client.responses.create(model="slow", input="one two", background=True)
        gate.wait(0.3)
        gate.set()
        with client.responses.retrieve(unfinished.id, stream=True) as stream:
            assert [event.sequence_number for event in stream] == list(range(11))


async def test_a_client_that_asks_much_and_reads_nothing_is_made_to_wait(here: World) -> None:
    async with dialled(here.gateway, here.key, max_queue=1) as connection:
        asking = asyncio.create_task(flood(connection, 20_000))
        heard = 0
        while heard < 20_000:
            assert (await hear(connection))["type"] == "error"
            heard += 1
        await asking


async def flood(connection: ClientConnection, messages: int) -> None:
    for _ in range(messages):
        await connection.send("{")


def test_without_a_broker_nothing_is_accepted_and_the_gateway_says_so(tmp_path: Path) -> None:
    with started_broker(BrokerChoice(), tmp_path) as launch:
        profile = BrokerProfile(launch.bootstrap_servers, "embedded")
        key = register_tenant(profile, "acme")
        settings = GatewaySettings(profile=profile, gateway_id="alone", accept_seconds=0.5)
        gateway = RunningGateway(replace(settings, port=free_port()))
        gateway.start()
    with httpx.Client(base_url=gateway.http, headers={"authorization": f"Bearer {key}"}, timeout=within(30)) as http:
        for path, body in (("/v1/responses", {"input": "x"}), ("/v1/chat/completions", {"messages": MESSAGES})):
            answer = http.post(path, json={"model": "chat", **body})
            assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")
            assert answer.headers["retry-after"] == "1"
        while http.get("/readyz").status_code == 200:
            threading.Event().wait(0.05)
        assert http.get("/healthz").status_code == 200
    gateway.stop()


def test_each_delivery_is_recorded(here: World, client: openai.OpenAI) -> None:
    plain = client.responses.create(model="chat", input="a b")
    events = list(client.responses.create(model="chat", input="a b", stream=True))
    assert events[0].type == "response.created"
    wanted = {request_id_of(plain.id): "http", request_id_of(events[0].response.id): "sse"}
    found: dict[str, ResponseDelivered] = {}
    with LogReader(here.profile, client_id="test") as reader:
        reader.assign(lifecycle_topic(here.tenant), 0, 0)
        while len(found) < len(wanted):
            for record in reader.poll(within(1)).records:
                event = record.event()
                if isinstance(event, ResponseDelivered) and event.request_id in wanted:
                    found[event.request_id] = event
    assert {request_id: event.transport for request_id, event in found.items()} == wanted
    streamed = found[request_id_of(events[0].response.id)]
    assert streamed.events == len(events)
    assert streamed.first_delta_at_us is not None


def request_of(here: World, response_id: str) -> RequestSubmitted:
    return next(request for request in here.upstream.requests if request.request_id == request_id_of(response_id))
