"""Bytes that nobody could read, for people: nothing in them may reach the terminal as a control character."""

from __future__ import annotations

import json
from collections.abc import Iterator

from schemas.events import Event
from streams.sink.rows import payload_of

SHOWN_BYTES = 4096
_LINE = 16


def printable(text: str) -> str:
    """One line, in which what can't be printed is written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_bytes(data: bytes) -> str:
    """As text where it is text."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def hex_dump(data: bytes, shown_bytes: int = SHOWN_BYTES) -> Iterator[str]:
    """Lines of offset, sixteen bytes, and these as ASCII; then how many are not shown."""
    for start in range(0, min(len(data), shown_bytes), _LINE):
        line = data[start : min(start + _LINE, shown_bytes)]
        ascii_ = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{start:08x}  {line.hex(' '):<{3 * _LINE - 1}}  {ascii_}"
    if len(data) > shown_bytes:
        yield f"... {len(data) - shown_bytes} bytes more"


def guess(data: bytes) -> tuple[str, list[str]]:
    """What bytes that are no event may be, and their lines as that."""
    if not data:
        return "nothing", []
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "binary", []
    try:
        return "JSON", json.dumps(json.loads(text), indent=2).splitlines()
    except (ValueError, RecursionError):
        pass
    readable = sum(char.isprintable() or char.isspace() for char in text)
    return ("text", [printable(line) for line in text.splitlines()]) if readable == len(text) else ("binary", [])


def event_lines(event: Event) -> list[str]:
    """The event as in `payload` of headrace.events, but in ASCII and a line for each field."""
    return json.dumps(json.loads(payload_of(event)), indent=2).splitlines()
