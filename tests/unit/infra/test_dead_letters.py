"""Bytes for people: all of them, and none that a terminal obeys."""

from __future__ import annotations

import json

import pytest

from infra.dead_letters import event_lines, guess, hex_dump, printable, printable_bytes
from schemas.events import Message, RequestSubmitted

SUBMITTED = RequestSubmitted(
    request_id="r", tenant="acme", at_us=1, received_at_us=1, source="\x1b[2J", model="m",
    messages=(Message(role="user", content="größe"),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [("größe 你好", "größe 你好"), ("\x1b[2J", "\\x1b[2J"), ("a\tb\nc", "a\\tb\\nc"), ("\u202e", "\\u202e")],
)
def test_control_characters_are_shown_not_sent(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_bytes_are_text_where_they_are() -> None:
    assert printable_bytes("größe\n".encode()) == "größe\\n"
    assert printable_bytes(b"\xff\x00") == "0xff00"


def test_a_hex_dump_has_offsets_bytes_and_letters_and_says_what_it_leaves_out() -> None:
    lines = list(hex_dump(b"Hello, dead letter\x00\xff!" + bytes(100), 32))
    assert lines == [
        "00000000  48 65 6c 6c 6f 2c 20 64 65 61 64 20 6c 65 74 74  Hello, dead lett",
        "00000010  65 72 00 ff 21 00 00 00 00 00 00 00 00 00 00 00  er..!...........",
        "... 89 bytes more",
    ]
    assert list(hex_dump(b"ab")) == ["00000000  61 62                                            ab"]


@pytest.mark.parametrize(
    ("data", "what", "lines"),
    [
        (b"", "nothing", []),
        (b'{"a": [1]}', "JSON", ["{", '  "a": [', "    1", "  ]", "}"]),
        (b"hello\nyou", "text", ["hello", "you"]),
        (b"\xff\xfe", "binary", []),
        (b"\x00\x01", "binary", []),
        (b"[" * 100_000, "text", ["[" * 100_000]),
    ],
)
def test_a_guess_at_what_the_bytes_are(data: bytes, what: str, lines: list[str]) -> None:
    assert guess(data) == (what, lines)


def test_an_event_is_json_in_plain_ascii() -> None:
    lines = event_lines(SUBMITTED)
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert json.loads("\n".join(lines))["messages"] == [{"role": "user", "content": "größe"}]
