"""The stream against a small server that loses connections."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from headrace_client.backoff import Backoff
from headrace_client.errors import (
    Closed,
    CreateUncertain,
    GatewayRefused,
    GatewayUnreachable,
    InvalidRequest,
    ProtocolError,
    RequestRefused,
    ResponseTimeout,
)
from headrace_client.response_state import Limits
from headrace_client.stream import Stream
from headrace_client.stream_events import OutputTextDelta
from headrace_client.stream_settings import StreamSettings
from infra.runtime.ports import free_port
from tests.client_server import ID, KEY, WORDS, acknowledge, error, frames_of, gateway, received, send

SOON = Backoff(first_s=0.001, most_s=0.01, attempts=50)
WHOLE = "".join(WORDS)


def stream_to(url: str, **settings: Any) -> Stream:
    return Stream(url, api_key=KEY, reconnect=SOON, **settings)


def answer_whole(connection: ServerConnection) -> None:
    send(connection, *acknowledge(connection))


async def test_an_answer_comes_as_it_is_made() -> None:
    with gateway(answer_whole) as url:
        async with stream_to(url) as stream:
            response = await stream.create(model="m", input="hi")
            assert response.response_id == ID
            assert [delta async for delta in response.text_deltas()] == list(WORDS)
            answer = await response.answer()
    assert (answer.status, answer.text, answer.output_tokens) == ("completed", WHOLE, len(WORDS))
    assert response.last_sequence_number == len(frames_of()) - 1


async def test_a_lost_connection_is_resumed_where_the_answer_stood() -> None:
    resumes: list[dict[str, Any]] = []

    def handler(connection: ServerConnection) -> None:
        if not resumes:
            resumes.append({})
            send(connection, *acknowledge(connection)[:3])
            connection.close_socket()
        else:
            resumes.append(received(connection))
            send(connection, *frames_of()[resumes[-1]["starting_after"] + 1 :])

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            response = await stream.create(model="m")
            assert [delta async for delta in response.text_deltas()] == list(WORDS)
    assert [resume["response_id"] for resume in resumes[1:]] == [ID]


async def test_a_response_that_was_begun_elsewhere_goes_on_here() -> None:
    def handler(connection: ServerConnection) -> None:
        send(connection, *frames_of()[received(connection)["starting_after"] + 1 :])

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            response = await stream.resume(ID, starting_after=4)
            assert [delta async for delta in response.text_deltas()] == list(WORDS[2:])


async def test_a_create_that_is_lost_without_an_answer_is_uncertain_unless_it_may_run_twice() -> None:
    calls: list[None] = []

    def handler(connection: ServerConnection) -> None:
        calls.append(None)
        if len(calls) % 2:
            received(connection)
            connection.close_socket()
        else:
            answer_whole(connection)

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            with pytest.raises(CreateUncertain):
                await stream.create(model="m")
        calls.clear()
        async with stream_to(url) as stream:
            answer = await (await stream.create(model="m", retry=True)).answer()
    assert answer.text == WHOLE


async def test_a_refused_request_says_why() -> None:
    def handler(connection: ServerConnection) -> None:
        send(connection, error(400, "invalid_value", received(connection)["event_id"]))

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            with pytest.raises(RequestRefused, match="400 invalid_value"):
                await stream.create(model="m")


async def test_a_cancelled_answer_goes_on_to_its_last_event() -> None:
    def handler(connection: ServerConnection) -> None:
        send(connection, *acknowledge(connection)[:3])
        assert received(connection)["type"] == "response.cancel"
        place = {"response_id": ID, "sequence_number": 4}
        send(connection, {"type": "response.cancelled", "response": {}, **place})

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            response = await stream.create(model="m")
            await response.cancel()
            answer = await response.answer()
    assert answer.status == "cancelled"


async def test_a_response_that_takes_too_long_is_cancelled_and_says_so() -> None:
    messages: list[str] = []
    heard = threading.Event()

    def handler(connection: ServerConnection) -> None:
        acknowledge(connection)
        messages.append(received(connection)["type"])
        heard.set()

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            response = await stream.create(model="m", timeout=0.2)
            with pytest.raises(ResponseTimeout, match=r"0\.2 s"):
                await response.answer()
            assert await asyncio.to_thread(heard.wait, 10)
    assert messages == ["response.cancel"]


async def test_garbage_without_end_is_a_protocol_error() -> None:
    def handler(connection: ServerConnection) -> None:
        received(connection)
        connection.send("<html>")

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            with pytest.raises(ProtocolError, match="no Headrace gateway"):
                await stream.create(model="m", retry=True)


async def test_a_key_that_nobody_knows_is_refused_and_no_gateway_is_unreachable() -> None:
    with gateway(answer_whole) as url:
        with pytest.raises(GatewayRefused, match="API key") as refused:
            async with Stream(url, api_key="other"):
                raise AssertionError("never connected")
        assert refused.value.status == 401
    with pytest.raises(GatewayUnreachable):
        async with Stream(f"http://127.0.0.1:{free_port()}", api_key=KEY):
            raise AssertionError("never connected")


async def test_a_gateway_that_does_not_come_back_is_unreachable_in_the_end() -> None:
    def handler(connection: ServerConnection) -> None:
        acknowledge(connection)
        connection.recv()

    with ExitStack() as server:
        url = server.enter_context(gateway(handler))
        async with Stream(url, api_key=KEY, reconnect=Backoff(0.001, 0.01, attempts=2)) as stream:
            response = await stream.create(model="m")
            await asyncio.to_thread(server.close)
            with pytest.raises(GatewayUnreachable):
                await response.answer()


async def test_a_closed_stream_says_so_to_its_readers() -> None:
    def handler(connection: ServerConnection) -> None:
        acknowledge(connection)
        with pytest.raises(ConnectionClosed):
            connection.recv()

    with gateway(handler) as url:
        async with stream_to(url) as stream:
            response = await stream.create(model="m")
            reading = asyncio.create_task(response.answer())
            await asyncio.sleep(0)
        with pytest.raises(Closed):
            await reading
        with pytest.raises(Closed):
            await stream.create(model="m")


async def test_a_reader_who_does_not_read_holds_the_server_back_and_loses_nothing() -> None:
    words = tuple(f"{number} " for number in range(5_000))
    blocked = threading.Event()

    def handler(connection: ServerConnection) -> None:
        created = {**frames_of(words)[0], "event_id": received(connection)["event_id"]}
        padding = "x" * 4_000  # so that it does not all fit into the kernel's buffers
        for number, frame in enumerate([created, *frames_of(words)[1:]]):
            if number == 4_000:
                blocked.set()
            send(connection, {**frame, "obfuscation": padding})

    with gateway(handler) as url:
        async with stream_to(url, limits=Limits(buffer_events=16)) as stream:
            response = await stream.create(model="m")
            await asyncio.sleep(0.2)
            assert not blocked.is_set()
            assert len(response._state.buffer) <= 16
            assert [delta async for delta in response.text_deltas()] == list(words)


async def test_a_reader_who_does_not_read_does_not_stop_the_others() -> None:
    words = tuple(f"{number} " for number in range(200))
    resumed: list[int] = []

    def handler(connection: ServerConnection) -> None:
        first = received(connection)
        if first["type"] == "response.resume":
            resumed.append(first["starting_after"])
            send(connection, *frames_of(words, "resp_slow")[first["starting_after"] + 1 :])
            return
        second = received(connection)
        slow, fast = frames_of(words, "resp_slow"), frames_of(words, "resp_fast")
        send(connection, {**slow[0], "event_id": first["event_id"]}, {**fast[0], "event_id": second["event_id"]})
        for pair in zip(slow[1:], fast[1:], strict=True):
            send(connection, *pair)
        with pytest.raises(ConnectionClosed):
            connection.recv()

    with gateway(handler) as url:
        async with stream_to(url, limits=Limits(buffer_events=16)) as stream:
            slow, fast = await asyncio.gather(stream.create(model="m"), stream.create(model="m"))
            assert [delta async for delta in fast.text_deltas()] == list(words)
            assert resumed == []  # nobody has asked for more of it
            assert [delta async for delta in slow.text_deltas()] == list(words)
    assert len(resumed) == 1


async def test_events_can_be_taken_many_at_a_time() -> None:
    with gateway(answer_whole) as url:
        async with stream_to(url) as stream:
            response = await stream.create(model="m")
            events = []
            while taken := await response.take():
                events += taken
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == list(WORDS)


def test_a_key_that_no_header_carries_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequest, match="line end") as refused:
        Stream("http://127.0.0.1:1", api_key="hr_secret\n")
    assert "secret" not in str(refused.value)


async def test_what_is_no_request_is_refused_before_it_is_sent() -> None:
    with gateway(answer_whole) as url:
        async with stream_to(url) as stream:
            for wrong in (
                {"type": "ping"},
                {"input": object()},
                {"top_p": float("nan")},
                {"input": "x" * 4 * 1024 * 1024},
            ):
                with pytest.raises(InvalidRequest):
                    await stream.create(**wrong)
    with pytest.raises(InvalidRequest, match="http://host:port"):
        Stream("ftp://host", api_key=KEY)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://host:8080", "ws://host:8080/v1/responses"),
        ("https://host/", "wss://host/v1/responses"),
        ("wss://host/v1/responses", "wss://host/v1/responses"),
        ("https://host/headrace", "wss://host/headrace/v1/responses"),
    ],
)
def test_an_address_is_taken_as_people_write_it(url: str, endpoint: str) -> None:
    assert StreamSettings(url, "key").endpoint() == endpoint
