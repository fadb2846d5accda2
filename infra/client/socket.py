"""One WebSocket to a gateway: create a response, read it as it comes, resume it after a lost connection, cancel it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypedDict

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from infra.client.answer import Answer
from infra.errors import GatewayRefused, GatewayUnreachable

_OPEN_SECONDS = 10.0
_LONGEST_FRAME_BYTES = 4 * 1024 * 1024
# A dead gateway shows as a pause: another one, or the same one restarted, has half a minute to take over.
_RECONNECT_ATTEMPTS = 60
_RECONNECT_SECONDS = 0.5


class Message(TypedDict):
    role: str
    content: str


class ResponseStream:
    """Iterate over it for the text as it comes; `answer` is what is known so far.

    A lost connection is made again and the response resumed where it stood. Raises GatewayUnreachable when that does
    not work either.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.answer = Answer()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        while not self.answer.is_over:
            event = self._session.receive(self.answer)
            self.answer, delta = self.answer.take(event)
            if delta:
                return delta
        raise StopIteration

    def cancel(self) -> None:
        """Ask the server to end the response; the stream goes on to its terminal event."""
        if self.answer.response_id is not None and not self.answer.is_over:
            self._session.send({"type": "response.cancel", "response_id": self.answer.response_id})


class Session:
    """A connection to a gateway that is made again when it is lost. Not for several threads, except `abandon`."""

    def __init__(self, gateway_url: str, api_key: str) -> None:
        self._url = gateway_url.rstrip("/").replace("http", "ws", 1) + "/v1/responses"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._socket: ClientConnection | None = None
        self._closing = ExitStack()
        self._abandoned = threading.Event()

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def abandon(self) -> None:
        """From another thread: stop waiting for a gateway that will not come back."""
        self._abandoned.set()

    def ask(self, model: str, messages: Sequence[Message], **parameters: float) -> ResponseStream:
        """Start a response; `parameters` are those of the API (temperature, max_output_tokens, ...).

        Raises GatewayUnreachable and GatewayRefused.
        """
        self.send({"type": "response.create", "model": model, "input": list(messages), **parameters})
        return ResponseStream(self)

    def send(self, frame: Mapping[str, Any]) -> None:
        text = json.dumps(frame)
        try:
            self._connected().send(text)
        except ConnectionClosed:
            self._reconnect().send(text)

    def receive(self, answer: Answer) -> Mapping[str, Any]:
        """The next event; after a lost connection, the next one that `answer` has not seen."""
        try:
            return _parse(self._connected().recv())
        except ConnectionClosed as lost:
            if answer.response_id is None:  # nothing to resume: it may not even have arrived
                raise GatewayUnreachable(self._url, "the connection was lost before the response began") from lost
            socket = self._reconnect()
            cursor = {"response_id": answer.response_id, "starting_after": answer.last_sequence_number}
            socket.send(json.dumps({"type": "response.resume", **cursor}))
            return {}

    def _connected(self) -> ClientConnection:
        return self._socket if self._socket is not None else self._connect()

    def _connect(self) -> ClientConnection:
        self._closing.close()
        try:
            self._socket = self._closing.enter_context(
                connect(
                    self._url,
                    additional_headers=self._headers,
                    open_timeout=_OPEN_SECONDS,
                    max_size=_LONGEST_FRAME_BYTES,
                    proxy=None if "://127.0.0.1" in self._url or "://localhost" in self._url else True,
                )
            )
        except InvalidStatus as error:
            raise GatewayRefused(self._url, error.response.status_code) from error
        except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as error:
            raise GatewayUnreachable(self._url, str(error) or type(error).__name__) from error
        return self._socket

    def _reconnect(self) -> ClientConnection:
        for attempt in range(1, _RECONNECT_ATTEMPTS + 1):
            try:
                return self._connect()
            except GatewayUnreachable:
                if attempt == _RECONNECT_ATTEMPTS or self._abandoned.wait(_RECONNECT_SECONDS):
                    raise
        raise AssertionError("the last attempt returns or raises")


def _parse(frame: str | bytes) -> Mapping[str, Any]:
    event = json.loads(frame)
    return event if isinstance(event, Mapping) else {}
