"""The whole answer of one response, from its last event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace_client.errors import AnswerFailed, RequestProblem, RequestRefused
from headrace_client.stream_events import Logprob, ResponseEnd, ResponseFailed, logprobs_of

# The event says the error's type; the HTTP API has one status for each.
_STATUS = {
    "invalid_request_error": 400, "authentication_error": 401, "permission_error": 403, "not_found_error": 404,
    "conflict_error": 409, "request_too_large": 413, "rate_limit_error": 429, "overloaded_error": 503,
    "timeout_error": 504,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """status: completed, incomplete (a token limit) or cancelled. response: the object of the last event."""

    response_id: str
    status: str
    text: str
    response: Mapping[str, Any]

    @property
    def output_tokens(self) -> int | None:
        """As the server counts them."""
        usage = self.response.get("usage")
        tokens = usage.get("output_tokens") if isinstance(usage, Mapping) else None
        return tokens if isinstance(tokens, int) else None

    @property
    def logprobs(self) -> tuple[Logprob, ...]:
        """Of the tokens of the text, if the request asked for them."""
        try:
            return tuple(entry for part in _parts(self.response) for entry in logprobs_of(part.get("logprobs", ())))
        except (KeyError, TypeError, ValueError, AttributeError):  # a server of another kind
            return ()


def answer_of(end: ResponseEnd) -> Answer:
    """The last event holds the whole text. Raises RequestRefused and AnswerFailed for a response that failed."""
    if isinstance(end, ResponseFailed):
        raise problem_of(end)
    return Answer(end.response_id, end.status, "".join(_texts(end.response)), end.response)


def problem_of(end: ResponseFailed) -> RequestProblem:
    """Why there is no (whole) answer. Refused: no worker had begun."""
    error = end.response.get("error")
    detail: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    kind, param = str(detail.get("type", "server_error")), detail.get("param")
    make = AnswerFailed if end.response.get("output") else RequestRefused
    return make(
        str(detail.get("message", "the response failed")), status=_STATUS.get(kind, 500), type=kind,
        code=str(detail.get("code", "server_error")), param=None if param is None else str(param),
    )  # fmt: skip


def _parts(response: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The pieces of text."""
    for item in response["output"]:
        if item.get("type") == "message":
            yield from (part for part in item["content"] if part.get("type") == "output_text")


def _texts(response: Mapping[str, Any]) -> list[str]:
    try:
        return [str(part["text"]) for part in _parts(response)]
    except (KeyError, TypeError, AttributeError):  # a server of another kind; it has no text for us
        return []
