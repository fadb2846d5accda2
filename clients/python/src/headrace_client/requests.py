"""From the arguments of `submit` to a RequestSubmitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Required, TypedDict, cast

from headrace_client.contract.errors import InvalidName
from headrace_client.contract.events import Message, RequestSubmitted
from headrace_client.contract.names import check_tenant
from headrace_client.errors import InvalidRequest

_SECOND_US = 1_000_000
_PLAIN = ("max_output_tokens", "temperature", "top_p", "top_k", "seed", "end_user")
_KNOWN = frozenset({"tenant", "model", "prompt", "messages", "stop", "deadline", "metadata", *_PLAIN})
_new = object.__new__
_set = object.__setattr__


class ChatMessage(TypedDict):
    """One turn of the conversation. role: `system`, `user` or `assistant`."""

    role: str
    content: str


class RequestFields(TypedDict, total=False):
    """What is asked for. Ranges are the server's to check: what is out of range ends as a rejection.

    prompt, messages: one of the two; a prompt is one message of the user.
    deadline: from now, or at a time (with a time zone): no worker goes on past it.
    """

    tenant: Required[str]
    model: Required[str]
    prompt: str
    messages: Sequence[ChatMessage | Message]
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    stop: str | Sequence[str]
    deadline: timedelta | datetime | None
    end_user: str | None
    metadata: Mapping[str, str]


def build_request(fields: RequestFields, *, request_id: str, now_us: int, source: str) -> RequestSubmitted:
    """The event. Raises InvalidRequest."""
    given = cast(dict[str, Any], fields)
    if unknown := given.keys() - _KNOWN:
        raise InvalidRequest(f"submit does not take {sorted(unknown)}; it takes {sorted(_KNOWN)}")
    stop, deadline = given.get("stop", ()), given.get("deadline")
    # As the codec does for what it reads: one dict in place of a call for each field.
    request: RequestSubmitted = _new(RequestSubmitted)
    _set(
        request,
        "__dict__",
        {
            "request_id": request_id,
            "tenant": given["tenant"],
            "at_us": now_us,
            "received_at_us": now_us,
            "source": source,
            "endpoint": "events",
            "model": given["model"],
            "messages": _messages(given),
            "max_output_tokens": given.get("max_output_tokens"),
            "temperature": given.get("temperature"),
            "top_p": given.get("top_p"),
            "top_k": given.get("top_k"),
            "seed": given.get("seed"),
            "stop": (stop,) if isinstance(stop, str) else tuple(stop),
            "deadline_at_us": None if deadline is None else _deadline_us(deadline, now_us),
            "end_user": given.get("end_user"),
            "metadata": given.get("metadata") or {},
        },
    )
    return request


def check_fields(fields: RequestFields) -> str:
    """The tenant. Raises InvalidRequest for what can't even be addressed."""
    for name in ("tenant", "model"):
        if name not in fields:
            raise InvalidRequest(f"a request needs a {name}")
    try:
        return check_tenant(fields["tenant"])
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error


def _messages(given: Mapping[str, Any]) -> tuple[Message, ...]:
    prompt, messages = given.get("prompt"), given.get("messages")
    if (prompt is None) == (messages is None):
        raise InvalidRequest("a request has either a prompt or messages")
    if prompt is not None:
        return (Message(role="user", content=prompt),)
    return tuple(map(_message, cast(Sequence[ChatMessage | Message], messages)))


def _message(given: ChatMessage | Message) -> Message:
    if isinstance(given, Message):
        return given
    try:
        return Message(role=given["role"], content=given["content"])
    except (KeyError, TypeError):
        raise InvalidRequest(f"a message has a role and a content, got {given!r:.200}") from None


def _deadline_us(deadline: timedelta | datetime, now_us: int) -> int:
    if isinstance(deadline, timedelta):
        return now_us + round(deadline.total_seconds() * _SECOND_US)
    if deadline.tzinfo is None:
        raise InvalidRequest(f"the deadline {deadline.isoformat()} has no time zone: use datetime.now(UTC) + ...")
    return round(deadline.timestamp() * _SECOND_US)
