"""Pure ASGI middleware: every HTTP exchange has an id, and is counted."""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.metrics import GatewayMetrics

_UNROUTED = "other"


class HttpIdentity:
    """Puts an id into the scope and into x-request-id. An endpoint that makes a response puts that one's id there, so
    that `headrace explain` can be asked about whatever answer the client gets, an error too."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headrace.request_id"] = f"req_{secrets.token_hex(16)}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("x-request-id", scope["headrace.request_id"])
                route = getattr(scope.get("route"), "path", _UNROUTED)
                self._metrics.http_answers.labels(route, str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, send_with_id)
