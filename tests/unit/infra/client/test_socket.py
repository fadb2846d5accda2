"""The client against a small server that loses connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Any

import pytest
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from infra.client.socket import Message, Session
from infra.errors import GatewayRefused, GatewayUnreachable
from infra.runtime.ports import LOOPBACK, free_port

KEY = "hr_key"
QUESTION = [Message(role="user", content="?")]
WORDS = ["one ", "two ", "three ", "four"]
Handler = Callable[[ServerConnection], None]


@contextmanager
def gateway(handler: Handler) -> Iterator[str]:
    def authorize(connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") == f"Bearer {KEY}" and request.path == "/v1/responses":
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "who are you?")

    with serve(handler, LOOPBACK, 0, process_request=authorize) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def received(connection: ServerConnection) -> dict[str, Any]:
    frame = json.loads(connection.recv())
    assert isinstance(frame, dict)
    return frame


def send_words(connection: ServerConnection, first: int, last: int) -> None:
    for number in range(first, last):
        place = {"response_id": "resp_1", "sequence_number": number}
        connection.send(json.dumps({"type": "response.output_text.delta", "delta": WORDS[number], **place}))


def complete(connection: ServerConnection, kind: str = "response.completed") -> None:
    connection.send(json.dumps({"type": kind, "response_id": "resp_1", "sequence_number": len(WORDS)}))


def test_the_answer_comes_as_it_is_made() -> None:
    asked: list[dict[str, Any]] = []

    def handler(connection: ServerConnection) -> None:
        asked.append(received(connection))
        send_words(connection, 0, 4)
        complete(connection)

    with gateway(handler) as url, Session(url, KEY) as session:
        stream = session.ask("smollm2", QUESTION)
        assert list(stream) == WORDS

    assert stream.answer.status == "completed"
    assert asked == [{"type": "response.create", "model": "smollm2", "input": QUESTION}]


def test_a_lost_connection_is_resumed_where_the_answer_stood() -> None:
    frames: list[dict[str, Any]] = []

    def handler(connection: ServerConnection) -> None:
        frames.append(received(connection))
        if len(frames) == 1:
            send_words(connection, 0, 2)
            connection.close_socket()
        else:
            send_words(connection, 2, 4)
            complete(connection)

    with gateway(handler) as url, Session(url, KEY) as session:
        assert list(session.ask("smollm2", QUESTION)) == WORDS

    assert frames[1] == {"type": "response.resume", "response_id": "resp_1", "starting_after": 1}


def test_a_cancelled_answer_goes_on_to_its_last_event() -> None:
    def handler(connection: ServerConnection) -> None:
        received(connection)
        send_words(connection, 0, 1)
        assert received(connection) == {"type": "response.cancel", "response_id": "resp_1"}
        complete(connection, "response.cancelled")

    with gateway(handler) as url, Session(url, KEY) as session:
        stream = session.ask("smollm2", QUESTION)
        assert next(stream) == WORDS[0]
        stream.cancel()
        assert list(stream) == []

    assert stream.answer.status == "cancelled"


def test_a_connection_that_is_lost_before_the_response_began_is_an_error() -> None:
    def handler(connection: ServerConnection) -> None:
        received(connection)
        connection.close_socket()

    with gateway(handler) as url, Session(url, KEY) as session, pytest.raises(GatewayUnreachable, match="before"):
        list(session.ask("smollm2", QUESTION))


def test_waiting_for_a_gateway_that_is_gone_ends_when_the_session_is_abandoned() -> None:
    def handler(connection: ServerConnection) -> None:
        received(connection)
        send_words(connection, 0, 1)
        received(connection)

    with ExitStack() as server:
        url = server.enter_context(gateway(handler))
        with Session(url, KEY) as session:
            stream = session.ask("smollm2", QUESTION)
            assert next(stream) == WORDS[0]
            session.abandon()
            server.close()
            with pytest.raises(GatewayUnreachable, match="No gateway answers"):
                next(stream)


def test_a_key_that_is_not_known_is_an_error_that_says_what_to_set() -> None:
    def handler(connection: ServerConnection) -> None:
        raise AssertionError("never connected")

    with gateway(handler) as url, pytest.raises(GatewayRefused, match="HEADRACE_API_KEY"), Session(url, "other"):
        raise AssertionError("never connected")


def test_no_gateway_at_all_is_an_error_that_says_what_to_start() -> None:
    with pytest.raises(GatewayUnreachable, match="headrace up"), Session(f"http://{LOOPBACK}:{free_port()}", KEY):
        raise AssertionError("never connected")
