"""The goodbye of a connection."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from headrace_client.connection import hang_up
from tests.timing import within


async def test_a_goodbye_that_is_interrupted_drops_the_socket() -> None:
    is_deaf, is_over = asyncio.Event(), asyncio.Event()

    async def deaf(server: ServerConnection) -> None:
        server.transport.pause_reading()
        is_deaf.set()
        await is_over.wait()
        server.transport.abort()

    async with asyncio.timeout(within(10)), serve(deaf, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        socket = await connect(f"ws://127.0.0.1:{port}", proxy=None)
        await is_deaf.wait()
        goodbye = asyncio.create_task(hang_up(socket))
        await asyncio.sleep(0.05)
        assert not goodbye.done()
        assert not socket.transport.is_closing(), "it waits for the server's goodbye"
        goodbye.cancel()
        with pytest.raises(asyncio.CancelledError):
            await goodbye
        assert socket.transport.is_closing()
        is_over.set()
