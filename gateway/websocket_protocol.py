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
from websockets.http11 import Request
from websockets.protocol import OPEN

FRAMES = "headrace.frames"
ABORT = "headrace.abort"


class FramesProtocol(WebSocketsSansIOProtocol):
    """What uvicorn speaks on each WebSocket."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101 and not self.conn.extensions:
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
        if self.disconnected or self.close_sent or self.conn.state is not OPEN:
            raise ClientDisconnected
        self.transport.write(b"".join(map(text_frame, frames)))


def text_frame(text: str) -> bytes:
    """A whole text message from a server without extensions (RFC 6455, section 5.2): final, not masked.

    Put together here: what `websockets` does for each frame costs as much as making the event in it.
    """
    data = text.encode()
    size = len(data)
    if size < 126:
        return b"\x81" + size.to_bytes() + data
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2) + data
    return b"\x81\x7f" + size.to_bytes(8) + data


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
