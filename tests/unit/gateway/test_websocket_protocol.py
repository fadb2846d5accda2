"""Frames that are put together by hand."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from gateway.websocket_protocol import text_frame


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 200_000])
def test_a_text_frame_is_the_one_that_websockets_makes(size: int) -> None:
    assert text_frame("x" * size) == Frame(Opcode.TEXT, b"x" * size).serialize(mask=False)


def test_its_length_is_counted_in_bytes() -> None:
    text = "🌊é" * 21  # 63 characters, 126 bytes
    assert text_frame(text) == Frame(Opcode.TEXT, text.encode()).serialize(mask=False)
