from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from models.tokenizer import ByteTokenizer, DirectoryTokenizer
from tests.property.test_detokenizer import metaspace_like, sentencepiece_like, wordpiece_like
from tests.tiny_model import make_tiny_tokenizer, tiny_tokenizer


def test_a_byte_is_itself_and_the_end_is_nothing() -> None:
    assert [ByteTokenizer().token_bytes(i) for i in (0, 0x61, 255, 256, 999)] == [b"\0", b"a", b"\xff", b"", b""]


def test_pieces_of_characters_are_their_bytes(tmp_path: Path) -> None:
    tokenizer = DirectoryTokenizer.open(make_tiny_tokenizer(tmp_path))
    pieces = [tokenizer.token_bytes(i) for i in tokenizer.encode("🌋é")]
    assert b"".join(pieces) == "🌋é".encode()
    assert pieces[0] in "🌋".encode()
    assert pieces[0] != "🌋".encode(), "the tiny vocabulary has no token for it, or this shows nothing"


def test_all_bytes_are_there_exactly_once_as_single_bytes() -> None:
    tokenizer = DirectoryTokenizer(tiny_tokenizer())
    all_bytes = [tokenizer.token_bytes(i) for i in range(tokenizer.vocabulary_size)]
    assert sorted(b for b in all_bytes if len(b) == 1) == [bytes([byte]) for byte in range(256)]


def test_special_and_unknown_tokens_add_nothing() -> None:
    tokenizer = DirectoryTokenizer(tiny_tokenizer())
    assert tokenizer.token_bytes(0) == tokenizer.token_bytes(1) == b""
    assert tokenizer.token_bytes(tokenizer.vocabulary_size) == b""


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("▁", b" "), ("▁▁", b"  "), ("▁ab", b" ab"), ("ab", b"ab"), ("é", "é".encode()), ("<0xC3>", b"\xc3"),
        ("<0x20>", b" "), ("\ufffd", "\ufffd".encode()), ("</s>", b""),
    ],
)  # fmt: skip
def test_tokens_of_sentencepiece_keep_their_space(token: str, expected: bytes) -> None:
    tokenizer = sentencepiece_like()
    token_id = tokenizer.token_to_id(token)
    assert token_id is not None
    assert DirectoryTokenizer(tokenizer).token_bytes(token_id) == expected


def test_a_token_that_only_looks_like_a_byte_is_its_text() -> None:
    tokenizer = sentencepiece_like()
    tokenizer.add_tokens([tokenizers.AddedToken("<0xZZ>", normalized=False)])
    token_id = tokenizer.token_to_id("<0xZZ>")
    assert token_id is not None
    assert DirectoryTokenizer(tokenizer).token_bytes(token_id) == b"<0xZZ>"


def test_words_and_their_endings_join_as_the_decoder_joins_them() -> None:
    words = DirectoryTokenizer(wordpiece_like())
    assert [words.token_bytes(i) for i in (1, 2, 5)] == [b" a", b"b", b","]
    assert DirectoryTokenizer(metaspace_like()).token_bytes(4) == b" a"


def test_an_added_token_is_its_own_text() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<tool call>"])
    token_id = tokenizer.token_to_id("<tool call>")
    assert token_id is not None
    assert DirectoryTokenizer(tokenizer).token_bytes(token_id) == b"<tool call>"
