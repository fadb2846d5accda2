"""Log probabilities: how each endpoint asks for them, and the shapes in which it tells them."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any, Final

from gateway.errors import InvalidRequest, UnsupportedParameter
from gateway.fields import Fields, show
from schemas.events import TokenLogprobs

INCLUDE_LOGPROBS: Final = "message.output_text.logprobs"
MOST_IN_COMPLETIONS: Final = 5
LOGPROB_BYTES: Final = 80
"""About what one token takes in JSON."""
LEAST: Final = -9999.0
"""What stands for a probability of zero, as in OpenAI's API: JSON has no infinity."""

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


def asked_of_chat(fields: Fields) -> int | None:
    """`logprobs` with `top_logprobs`: how many of the likeliest tokens are wanted, None for no log probabilities."""
    top = fields.integer("top_logprobs", 32)
    if fields.flag("logprobs"):
        return top or 0
    if top:
        raise InvalidRequest(f"top_logprobs is {top} and logprobs is not true; set it, too", param="top_logprobs")
    return None


def asked_of_completion(fields: Fields) -> int | None:
    """`logprobs` is the number here."""
    top = fields.integer("logprobs", 32)
    if top is not None and not 0 <= top <= MOST_IN_COMPLETIONS:
        raise InvalidRequest(f"logprobs is {top}; it must be from 0 to {MOST_IN_COMPLETIONS}", param="logprobs")
    return top


def asked_of_response(fields: Fields) -> int | None:
    """`include` with `top_logprobs`."""
    include = fields.raw("include") or []
    if not isinstance(include, list):
        fields.wrong("include", include, "a list")
    for name in include:
        if name != INCLUDE_LOGPROBS:
            raise UnsupportedParameter(f"include takes {INCLUDE_LOGPROBS}, got {show(name)}", param="include")
    top = fields.integer("top_logprobs", 32)
    if include:
        return top or 0
    if top:
        raise InvalidRequest(
            f'top_logprobs is {top} and include has no "{INCLUDE_LOGPROBS}"; add it', param="top_logprobs"
        )
    return None


def content_of(tokens: Iterable[TokenLogprobs]) -> list[dict[str, Any]]:
    """One object for each token, as Chat Completions and Responses have them."""
    return [
        {
            **_token(token.utf8, token.logprob),
            "top_logprobs": [_token(other.utf8, other.logprob) for other in token.top],
        }
        for token in tokens
    ]


def columns_of(tokens: Iterable[TokenLogprobs], offset_chars: int) -> dict[str, Any]:
    """The four lists of the legacy Completions. offset_chars: of the first token in the text."""
    names, offsets, logprobs, tops = [], [], [], []
    characters = _Utf8Decoder("replace")  # a character counts with the token that completes it
    for token in tokens:
        name = _name(token.utf8)
        names.append(name)
        offsets.append(offset_chars)
        logprobs.append(max(LEAST, token.logprob))
        # The likeliest first; of two that read alike it is the likelier one that stays.
        tops.append({_name(other.utf8): max(LEAST, other.logprob) for other in reversed(token.top)})
        offset_chars += len(characters.decode(token.utf8))
    return {"tokens": names, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}


def _token(utf8: bytes, logprob: float) -> dict[str, Any]:
    return {"token": utf8.decode(errors="replace"), "bytes": list(utf8), "logprob": max(LEAST, logprob)}


def _name(utf8: bytes) -> str:
    """A key: two halves of characters must not look the same."""
    try:
        return utf8.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in utf8)
