"""A WebSocket server of Headrace's protocol that misbehaves as it is told, and the frames that it sends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

KEY = "hr_key"
ID = "resp_1"
WORDS = ("one ", "two ", "three ", "four")
Handler = Callable[[ServerConnection], None]


def frames_of(words: tuple[str, ...] = WORDS, response_id: str = ID) -> list[dict[str, Any]]:
    """All events of one response, in order."""
    whole = {
        "id": response_id,
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "".join(words)}]}],
        "usage": {"output_tokens": len(words)},
    }
    bare: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": response_id}},
        {"type": "response.queued", "response": {"id": response_id}},
        {"type": "response.in_progress", "response": {"id": response_id}},
        *({"type": "response.output_text.delta", "delta": word} for word in words),
        {"type": "response.output_text.done", "text": "".join(words)},
        {"type": "response.completed", "response": whole},
    ]
    return [{**frame, "response_id": response_id, "sequence_number": number} for number, frame in enumerate(bare)]


def received(connection: ServerConnection) -> dict[str, Any]:
    """The client's next message."""
    message = json.loads(connection.recv())
    assert isinstance(message, dict)
    return message


def send(connection: ServerConnection, *frames: Mapping[str, Any]) -> None:
    for frame in frames:
        connection.send(json.dumps(frame))


def acknowledge(connection: ServerConnection, words: tuple[str, ...] = WORDS) -> list[dict[str, Any]]:
    """Take a create and send its `created`; the frames that follow."""
    created, *rest = frames_of(words)
    send(connection, {**created, "event_id": received(connection)["event_id"]})
    return rest


def error(status: int, code: str, event_id: str | None, **more: Any) -> dict[str, Any]:
    """An `error` frame."""
    detail = {"type": "some_error", "code": code, "message": f"because {code}", "param": None}
    return {"type": "error", "status": status, "error": detail, "event_id": event_id, **more}


@contextmanager
def gateway(handler: Handler) -> Iterator[str]:
    """Its address. `handler` has each connection with the right key on /v1/responses."""

    def authorize(connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") == f"Bearer {KEY}" and request.path == "/v1/responses":
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "who are you?")

    with serve(handler, "127.0.0.1", 0, process_request=authorize) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()
