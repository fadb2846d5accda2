"""The bytes that one token adds to a text, whatever the tokenizer's alphabet.

A tokenizer's own decoder is the authority: a token's text is what it adds behind a letter, where no decoder takes it
for the first of all and drops its space. Only where a token is a piece of a character has the decoder nothing to say;
then its bytes are read off its name: `<0xNN>`, or the byte-level alphabet of GPT-2, in which each of the 256 bytes is a
printable character.
"""

from __future__ import annotations

import string
from typing import Final

import tokenizers

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class TokenBytes:
    """Of one tokenizer. Safe to share between threads."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, *, byte_ids: frozenset[int]) -> None:
        """byte_ids: the ids of `<0xNN>` tokens that the tokenizer's decoder takes for bytes."""
        self._tokenizer = tokenizer
        self._byte_ids = byte_ids
        self._before = _letter(tokenizer)

    def of(self, token_id: int) -> bytes:
        """Of a token that `decode` does not leave out."""
        token = self._tokenizer.id_to_token(token_id) or ""
        if token_id in self._byte_ids:
            return bytes([int(token[3:5], 16)])
        text = self._text(token_id)
        if _REPLACEMENT not in text:
            return text.encode()
        found = [_BYTE_OF.get(character) for character in token]
        return text.encode() if None in found else bytes(byte for byte in found if byte is not None)

    def _text(self, token_id: int) -> str:
        before_ids, before_text = self._before
        text = self._tokenizer.decode([*before_ids, token_id], skip_special_tokens=True)
        if text.startswith(before_text):
            return text[len(before_text) :]
        return self._tokenizer.decode([token_id], skip_special_tokens=True)


def _letter(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], str]:
    """Ids and text of something to put before a token; nothing, if no letter is a token by itself."""
    for letter in string.ascii_letters:
        token_id = tokenizer.token_to_id(letter)
        if token_id is not None and tokenizer.decode([token_id], skip_special_tokens=True) == letter:
            return [token_id], letter
    return [], ""


def _byte_level_alphabet() -> dict[str, int]:
    """Character to byte: the printable ones of Latin-1 stand for themselves, the others come behind, from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_OF: Final = _byte_level_alphabet()
