from __future__ import annotations

import threading
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from headrace_client.backoff import Backoff
from headrace_client.errors import Closed, GatewayRefused, RequestRefused
from headrace_client.sync_stream import SyncStream
from tests.client_server import ID, KEY, WORDS, acknowledge, error, frames_of, gateway, received, send

SOON = Backoff(first_s=0.001, most_s=0.01, attempts=50)


def test_many_answers_over_one_socket_that_is_lost_once() -> None:
    sockets: list[None] = []

    def handler(connection: ServerConnection) -> None:
        sockets.append(None)
        if len(sockets) == 1:
            send(connection, *acknowledge(connection)[:3])
            connection.close_socket()
        else:
            send(connection, *frames_of()[received(connection)["starting_after"] + 1 :])

    with gateway(handler) as url, SyncStream(url, api_key=KEY, reconnect=SOON) as stream:
        response = stream.create(model="m")
        assert response.response_id == ID
        assert list(response.text_deltas()) == list(WORDS)
        assert response.answer().text == "".join(WORDS)
        assert response.last_sequence_number == len(frames_of()) - 1
    assert len(sockets) == 2


def test_a_wait_that_was_interrupted_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def handler(connection: ServerConnection) -> None:
        rest = acknowledge(connection)
        go_on.wait(10)
        send(connection, *rest)

    with gateway(handler) as url, SyncStream(url, api_key=KEY) as stream:
        response = stream.create(model="m")
        next(response)
        response._taking = interrupted = response._stream._begin(response._response.take())

        def once(*_: Any) -> None:
            monkeypatch.undo()
            go_on.set()
            raise KeyboardInterrupt

        monkeypatch.setattr(interrupted, "result", once)
        with pytest.raises(KeyboardInterrupt):
            next(response)
        assert list(response.text_deltas()) == list(WORDS)


def test_a_response_can_be_cancelled_resumed_and_refused() -> None:
    def handler(connection: ServerConnection) -> None:
        send(connection, *acknowledge(connection)[:3])
        assert received(connection)["type"] == "response.cancel"
        place = {"response_id": ID, "sequence_number": 4}
        send(connection, {"type": "response.cancelled", "response": {}, **place})
        resume = received(connection)
        send(connection, error(404, "response_not_found", resume["event_id"], response_id=resume["response_id"]))

    with gateway(handler) as url, SyncStream(url, api_key=KEY) as stream:
        response = stream.create(model="m")
        response.cancel()
        assert response.answer().status == "cancelled"
        with pytest.raises(RequestRefused, match="404"):
            stream.resume("resp_2", starting_after=1).answer()


def test_closing_from_another_thread_ends_a_wait() -> None:
    def handler(connection: ServerConnection) -> None:
        acknowledge(connection)
        connection.recv()

    with gateway(handler) as url, SyncStream(url, api_key=KEY) as stream:
        response = stream.create(model="m")
        closing = threading.Timer(0.1, stream.close)
        closing.start()
        with pytest.raises(Closed):
            response.answer()
        closing.join()
        with pytest.raises(Closed):
            stream.create(model="m")


def test_a_connection_that_is_refused_leaves_no_thread_behind() -> None:
    def handler(connection: ServerConnection) -> None:
        raise AssertionError("never connected")

    with gateway(handler) as url, pytest.raises(GatewayRefused), SyncStream(url, api_key="other"):
        raise AssertionError("never connected")
    assert not any(thread.name == "headrace-stream" for thread in threading.enumerate())


def test_a_stream_that_was_never_opened_says_so_in_place_of_waiting() -> None:
    stream = SyncStream("http://127.0.0.1:1", api_key=KEY)

    with pytest.raises(Closed, match="use it as `with SyncStream"):
        stream.create(model="m")

    stream.close()
