"""Token ids to text while they arrive.

A token is not a text: it may end inside a character, and its text may depend on the tokens before it. So a
token's text is what it adds to the text of the few tokens before it, and what the next token could still
change is held back. Two facts bound both:

* UTF-8 is self-synchronising and a character has at most four bytes. The last four tokens (of at least one
  byte each) therefore settle how the text ends, wherever the window is cut, and whether a broken tail stands.
* A decoder writes an unfinished tail as one U+FFFD (the maximal subpart of Unicode's chapter 3), so the last
  character of a text is in doubt only if it is U+FFFD. Tokens whose decoder doesn't keep to this say so
  (:meth:`models.tokenizer.Tokenizer.is_unsettled`) and wait for the token that closes their run.
"""

from collections.abc import Iterable
from typing import Final, Self

from models.tokenizer import Tokenizer

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CONTEXT_TOKENS: Final = 4
_LONGEST_WINDOW_TOKENS: Final = 16
"""The window is cut back to its context at this length: one decode more in every twelve tokens."""


class IncrementalDetokenizer:
    """The text of one response, piece by piece.

    The pieces of `push`, then `finish`, joined, are `tokenizer.decode` of all the ids; no piece ends inside a
    character. The cost of a token does not grow with the length of the response.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._settled_chars = 0  # of the window's text, given out already
        self._pieces: list[str] = []
        self._finished = False

    @classmethod
    def resumed(cls, tokenizer: Tokenizer, token_ids: Iterable[int]) -> Self:
        """The detokenizer as it is after `token_ids`; `text` is what it has given out for them."""
        detokenizer = cls(tokenizer)
        for token_id in token_ids:
            detokenizer.push(token_id)
        return detokenizer

    @property
    def text(self) -> str:
        """All that was given out so far."""
        return "".join(self._pieces)

    def push(self, token_id: int) -> str:
        """Text that `token_id` completes; empty while a character (or a run of byte tokens) is open.

        Raises RuntimeError after `finish`.
        """
        if self._finished:
            raise RuntimeError("push after finish: a finished response takes no more tokens")
        if self._tokenizer.is_silent(token_id):
            return ""
        self._window.append(token_id)
        if self._tokenizer.is_unsettled(token_id):
            return ""
        text = self._tokenizer.decode(self._window)
        piece = self._give_out(text, _settled_chars(text))
        if len(self._window) >= _LONGEST_WINDOW_TOKENS:
            self._cut()
        return piece

    def finish(self) -> str:
        """Text that was held back, with U+FFFD for what never became a character. Empty the second time."""
        self._finished = True
        text = self._tokenizer.decode(self._window)
        return self._give_out(text, len(text))

    def _give_out(self, text: str, settled_chars: int) -> str:
        piece = text[self._settled_chars : settled_chars]
        self._settled_chars = settled_chars
        self._pieces.append(piece)
        return piece

    def _cut(self) -> None:
        """Drop all but the context. Only where the last token is settled, so no run of bytes is cut open."""
        context = self._window[-_CONTEXT_TOKENS:]
        text = self._tokenizer.decode(context)
        if text:  # A context without text would let a decoder take the next token for the first of all.
            self._window = context
            self._settled_chars = _settled_chars(text)


def _settled_chars(text: str) -> int:
    """Length of the part of `text` that no further token can change."""
    return len(text) - text.endswith(_REPLACEMENT)
