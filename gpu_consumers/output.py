"""Token ids in, text out, until the answer ends: end-of-sequence, stop strings, the token limit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from models.detokenizer import IncrementalDetokenizer
from models.tokenizer import Tokenizer

FinishReason = Literal["stop", "length", "cancelled", "timeout"]


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """What ends an answer. Empty stop strings say nothing and are left out."""

    max_output_tokens: int
    eos_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()


class Output:
    """One answer while it is made: a function of its tokens alone, whoever made them and in whatever company.

    Text is given out as soon as no later token can take it back: a character must be whole, and text that may be
    the beginning of a stop string waits for what follows. The stop string that is whole first ends the answer, the
    longest of those if there are several, and the text is cut before it. The end-of-sequence token and the tokens of
    a stop string are counted and not shown. Whatever was held back when the answer is cut by its token limit is given
    out with the last token.
    """

    def __init__(self, tokenizer: Tokenizer, limits: OutputLimits) -> None:
        self._limits = limits
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._stop = StopStrings(limits.stop)
        self.token_count = 0
        self.text_chars = 0
        self.finish_reason: FinishReason | None = None

    @classmethod
    def resumed(cls, tokenizer: Tokenizer, limits: OutputLimits, token_ids: Iterable[int]) -> tuple[Self, str]:
        """The output as it is after these tokens, and the text that they gave; it may be finished by them."""
        output = cls(tokenizer, limits)
        pieces = []
        for token_id in token_ids:
            if output.finish_reason is not None:
                break
            pieces.append(output.push(token_id))
        return output, "".join(pieces)

    def push(self, token_id: int) -> str:
        """The text that this token completes. Sets `finish_reason` if it is the last; none may follow then."""
        if self.finish_reason is not None:
            raise RuntimeError(f"a token after the answer ended with {self.finish_reason}")
        self.token_count += 1
        if token_id in self._limits.eos_token_ids:
            text = self._finish("stop")
        else:
            text = self._stop.push(self._detokenizer.push(token_id))
            if self._stop.found:
                self.finish_reason = "stop"
            elif self.token_count >= self._limits.max_output_tokens:
                text += self._finish("length")
        self.text_chars += len(text)
        return text

    def _finish(self, reason: FinishReason) -> str:
        """What was held back; a stop string may come about in it."""
        text = self._stop.push(self._detokenizer.finish())
        self.finish_reason = "stop" if self._stop.found else reason
        return text + self._stop.finish()


class StopStrings:
    """Cuts a text, given in pieces, before the first stop string. How it falls into pieces changes nothing."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(text for text in stop if text)
        self._held = ""  # may be the beginning of a stop string
        self.found = False

    def push(self, piece: str) -> str:
        """Text that is certain now; empty once a stop string was found."""
        if self.found or not self._stop:
            return "" if self.found else piece
        text = self._held + piece
        # A stop string that ends in the piece begins in the text that was held back for it, or later.
        ends = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if ends:
            self.found = True
            self._held = ""
            return text[: min(ends)[1]]
        certain = len(text) - self._possible_beginning(text)
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """Text that was held back: nothing follows it, so it is no stop string."""
        held, self._held = self._held, ""
        return held

    def _possible_beginning(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        longest = min(len(text), max(len(stop) for stop in self._stop) - 1)
        for length in range(longest, 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0
