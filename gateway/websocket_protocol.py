"""uvicorn's WebSocket protocol with two more ASGI messages, offered to the application as an extension.

headrace.frames {frames}    many text messages in one write: one system call for what a poll of the log brought,
                            where one for each token would be most of a gateway's work
headrace.abort              drop the connection: it has taken nothing for long, so no close frame can reach it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

FRAMES = "headrace.frames"
ABORT = "headrace.abort"


class FramesProtocol(WebSocketsSansIOProtocol):
    """What uvicorn speaks on each WebSocket."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][FRAMES] = {}

    async def send(self, message: Any) -> None:
        if message["type"] == ABORT:
            self.transport.abort()
        elif message["type"] == FRAMES:
            await self._send_frames(message["frames"])
        else:
            await super().send(message)

    async def _send_frames(self, frames: Sequence[str]) -> None:
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            for frame in frames:
                self.conn.send_text(frame.encode())
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))


async def send_frames(websocket: WebSocket, frames: Sequence[str]) -> None:
    """Send them all, in one write where the server can. Raises WebSocketDisconnect."""
    if FRAMES not in websocket.scope.get("extensions", {}):
        for frame in frames:
            await websocket.send_text(frame)
        return
    try:
        # Starlette's own `send` knows only the messages of the ASGI specification.
        await websocket._send({"type": FRAMES, "frames": frames})
    except OSError:
        raise WebSocketDisconnect(1006) from None


async def abort(websocket: WebSocket) -> None:
    """Drop the connection, where the server can."""
    if FRAMES in websocket.scope.get("extensions", {}):
        await websocket._send({"type": ABORT})
