"""Events of a WebSocket, typed. Shapes: docs/websocket.md; names: OpenAI's Responses API.

A type that is not known here is a newer server's: where it has a sequence number it counts as seen, and nobody is
told. `parse_event` is the hot path: one event for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class Garbage(ValueError):
    """A frame that no server of this protocol sends."""


@dataclass(frozen=True)
class ResponseEvent:
    """One event of a response. sequence_number: dense from 0, the same on every gateway."""

    response_id: str
    sequence_number: int


@dataclass(frozen=True)
class ResponseCreated(ResponseEvent):
    """The broker has the request: from here on it can be resumed. response: the object so far."""

    response: Mapping[str, Any]


@dataclass(frozen=True)
class ResponseQueued(ResponseEvent):
    """Its quota is reserved."""

    response: Mapping[str, Any]


@dataclass(frozen=True)
class ResponseInProgress(ResponseEvent):
    """A worker has begun."""

    response: Mapping[str, Any]


@dataclass(frozen=True)
class OutputItemAdded(ResponseEvent):
    item: Mapping[str, Any]


@dataclass(frozen=True)
class ContentPartAdded(ResponseEvent):
    part: Mapping[str, Any]


@dataclass(frozen=True)
class Logprob:
    """A token of the output with its log probability. utf8: what it adds to the text, maybe half a character.

    top: the likeliest tokens in its place, the likeliest first, as many as `top_logprobs` asked for; of these it is
    empty.
    """

    token: str
    utf8: bytes
    logprob: float
    top: tuple[Logprob, ...] = ()


@dataclass(frozen=True)
class OutputTextDelta(ResponseEvent):
    """The next piece of text. logprobs: of the tokens that complete it, if the request asked for them."""

    delta: str
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True)
class OutputTextDone(ResponseEvent):
    """The whole text."""

    text: str


@dataclass(frozen=True)
class ContentPartDone(ResponseEvent):
    part: Mapping[str, Any]


@dataclass(frozen=True)
class OutputItemDone(ResponseEvent):
    item: Mapping[str, Any]


@dataclass(frozen=True)
class ResponseEnd(ResponseEvent):
    """Base of the four last events. response: the whole object, with `usage`, and `error` if it failed."""

    response: Mapping[str, Any]

    @property
    def status(self) -> str:
        """completed, incomplete, cancelled or failed."""
        return type(self).__name__.removeprefix("Response").lower()


@dataclass(frozen=True)
class ResponseCompleted(ResponseEnd):
    """The answer is whole."""


@dataclass(frozen=True)
class ResponseIncomplete(ResponseEnd):
    """A token limit cut it."""


@dataclass(frozen=True)
class ResponseCancelled(ResponseEnd):
    """Somebody cancelled it."""


@dataclass(frozen=True)
class ResponseFailed(ResponseEnd):
    """It was refused, or can't be answered: see `response["error"]`."""


@dataclass(frozen=True)
class RateLimit:
    """name: `requests` or `tokens`."""

    name: str
    limit: int
    remaining: int
    reset_seconds: float


@dataclass(frozen=True)
class RateLimitsUpdated:
    """The tenant's quota, behind `response.queued`. It belongs to the connection: a resume does not repeat it."""

    response_id: str
    rate_limits: tuple[RateLimit, ...]


@dataclass(frozen=True)
class ServerError:
    """A message of ours was not done. event_id: that message's; response_id: the response that it was about."""

    status: int
    type: str
    code: str
    message: str
    param: str | None
    event_id: str | None
    response_id: str | None


@dataclass(frozen=True)
class Pong:
    event_id: str | None


@dataclass(frozen=True)
class Unknown:
    """A type of a newer server; of a response, if it has an id and a number."""

    type: str
    response_id: str | None
    sequence_number: int | None


StreamEvent = ResponseEvent | RateLimitsUpdated
ServerEvent = StreamEvent | ServerError | Pong | Unknown

# type -> (class, its field, the type of it)
_RESPONSE_EVENTS: dict[str, tuple[Callable[..., ResponseEvent], str, type]] = {
    "response.output_text.delta": (OutputTextDelta, "delta", str),
    "response.created": (ResponseCreated, "response", dict),
    "response.queued": (ResponseQueued, "response", dict),
    "response.in_progress": (ResponseInProgress, "response", dict),
    "response.output_item.added": (OutputItemAdded, "item", dict),
    "response.content_part.added": (ContentPartAdded, "part", dict),
    "response.output_text.done": (OutputTextDone, "text", str),
    "response.content_part.done": (ContentPartDone, "part", dict),
    "response.output_item.done": (OutputItemDone, "item", dict),
    "response.completed": (ResponseCompleted, "response", dict),
    "response.incomplete": (ResponseIncomplete, "response", dict),
    "response.cancelled": (ResponseCancelled, "response", dict),
    "response.failed": (ResponseFailed, "response", dict),
}
_new = object.__new__
_set = object.__setattr__


def parse_event(frame: Mapping[str, Any]) -> ServerEvent:
    """The event in a frame's JSON object. Raises Garbage."""
    kind = frame.get("type")
    if kind == "response.output_text.delta":
        fields = {
            "response_id": frame.get("response_id"),
            "sequence_number": frame.get("sequence_number"),
            "delta": frame.get("delta"),
            "logprobs": _logprobs(told) if (told := frame.get("logprobs")) else (),
        }
        if (
            type(fields["response_id"]) is not str
            or type(fields["sequence_number"]) is not int
            or type(fields["delta"]) is not str
        ):
            raise Garbage(f"a delta that is none: {dict(frame)!r:.200}")
        delta: OutputTextDelta = _new(OutputTextDelta)
        _set(delta, "__dict__", fields)  # a third of what __init__ of a frozen dataclass takes
        return delta
    if not isinstance(kind, str):
        raise Garbage(f"an event without a type: {dict(frame)!r:.200}")
    try:
        return _parse(kind, frame)
    except (KeyError, TypeError, ValueError) as error:
        raise Garbage(f"a {kind:.80} that is none ({error!r:.80}): {dict(frame)!r:.200}") from error


def logprobs_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Logprob, ...]:
    """From the server's objects. Raises KeyError, TypeError and ValueError for what is none."""
    return tuple(
        Logprob(
            _of(entry["token"], str), bytes(entry["bytes"]), float(entry["logprob"]),
            logprobs_of(entry.get("top_logprobs", ())),
        )
        for entry in entries
    )  # fmt: skip


def _logprobs(told: Any) -> tuple[Logprob, ...]:
    try:
        return logprobs_of(told)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Garbage(f"log probabilities that are none ({error!r:.80}): {told!r:.200}") from error


def _parse(kind: str, frame: Mapping[str, Any]) -> ServerEvent:
    match kind:
        case "rate_limits.updated":
            limits = tuple(
                RateLimit(_of(row["name"], str), _of(row["limit"], int), _of(row["remaining"], int),
                          float(row["reset_seconds"]))
                for row in frame["rate_limits"]
            )  # fmt: skip
            return RateLimitsUpdated(_of(frame["response_id"], str), limits)
        case "error":
            error = frame["error"]
            return ServerError(
                status=_of(frame["status"], int), type=_of(error["type"], str), code=_of(error["code"], str),
                message=_of(error["message"], str), param=_maybe(error.get("param"), str),
                event_id=_maybe(frame.get("event_id"), str), response_id=_maybe(frame.get("response_id"), str),
            )  # fmt: skip
        case "pong":
            return Pong(_maybe(frame.get("event_id"), str))
    known = _RESPONSE_EVENTS.get(kind)
    if known is None:
        number, response_id = _maybe(frame.get("sequence_number"), int), _maybe(frame.get("response_id"), str)
        return Unknown(kind, response_id, number)
    make, field, of = known
    return make(_of(frame["response_id"], str), _of(frame["sequence_number"], int), _of(frame[field], of))


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _maybe(value: Any, kind: type) -> Any:
    return None if value is None else _of(value, kind)
