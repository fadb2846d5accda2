"""From the arguments of `submit` to a RequestSubmitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Required, TypedDict, cast

from headrace_client.contract.errors import InvalidName
from headrace_client.contract.events import LogitBias, Message, RequestSubmitted
from headrace_client.contract.names import check_tenant
from headrace_client.errors import InvalidRequest

_SECOND_US = 1_000_000
_PLAIN = (
    "max_output_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "top_logprobs", "json_schema", "end_user",
)  # fmt: skip
_KNOWN = frozenset({"tenant", "model", "prompt", "messages", "stop", "deadline", "metadata", "logit_bias", *_PLAIN})
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
    logit_bias: what is added to the logit of each token id. json_schema: JSON text of the schema that the output obeys.
    top_logprobs: how many of the likeliest tokens are told with each token's log probability; None: none of it.
    """

    tenant: Required[str]
    model: Required[str]
    prompt: str
    messages: Sequence[ChatMessage | Message]
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    top_logprobs: int | None
    json_schema: str | None
    seed: int | None
    stop: str | Sequence[str] | None
    deadline: timedelta | datetime | None
    end_user: str | None
    metadata: Mapping[str, str]


def build_request(fields: RequestFields, *, request_id: str, now_us: int, source: str) -> RequestSubmitted:
    """The event. Raises InvalidRequest."""
    given = cast(dict[str, Any], fields)
    if unknown := given.keys() - _KNOWN:
        raise InvalidRequest(f"submit does not take {sorted(unknown)}; it takes {sorted(_KNOWN)}")
    if "model" not in given:
        raise InvalidRequest("a request needs a model")
    stop, deadline, bias = given.get("stop"), given.get("deadline"), given.get("logit_bias")
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
            "stop": () if stop is None else _stops(stop),
            "deadline_at_us": None if deadline is None else _deadline_us(deadline, now_us),
            "end_user": given.get("end_user"),
            "metadata": given.get("metadata") or {},
            "min_p": given.get("min_p"),
            "repetition_penalty": given.get("repetition_penalty"),
            "presence_penalty": given.get("presence_penalty"),
            "frequency_penalty": given.get("frequency_penalty"),
            "logit_bias": () if bias is None else _biases(bias),
            "top_logprobs": given.get("top_logprobs"),
            "json_schema": given.get("json_schema"),
        },
    )
    return request


def check_fields(fields: RequestFields) -> str:
    """The tenant. Raises InvalidRequest for what can't even be addressed."""
    for name in ("tenant", "model"):
        if name not in fields:
            raise InvalidRequest(f"a request needs a {name}")
    tenant: object = fields["tenant"]
    if not isinstance(tenant, str):
        raise InvalidRequest(f"a tenant is a name, got {tenant!r:.200}")
    try:
        return check_tenant(tenant)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error


def _messages(given: Mapping[str, Any]) -> tuple[Message, ...]:
    prompt, messages = given.get("prompt"), given.get("messages")
    if (prompt is None) == (messages is None):
        raise InvalidRequest("a request has either a prompt or messages")
    if prompt is not None:
        return (Message(role="user", content=prompt),)
    if not isinstance(messages, Iterable):
        raise InvalidRequest(f"messages are a sequence of messages, got {messages!r:.200}")
    return tuple(map(_message, cast(Sequence[ChatMessage | Message], messages)))


def _message(given: ChatMessage | Message) -> Message:
    if isinstance(given, Message):
        return given
    try:
        return Message(role=given["role"], content=given["content"])
    except (KeyError, TypeError):
        raise InvalidRequest(f"a message has a role and a content, got {given!r:.200}") from None


def _stops(stop: object) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (stop,)
    if not isinstance(stop, Iterable):
        raise InvalidRequest(f"stop is a text, or a sequence of texts, got {stop!r:.200}")
    return tuple(stop)


def _biases(given: object) -> tuple[LogitBias, ...]:
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"logit_bias maps token ids to what is added to their logits, got {given!r:.200}")
    return tuple(LogitBias(token_id=token_id, bias=bias) for token_id, bias in given.items())


def _deadline_us(deadline: object, now_us: int) -> int:
    if isinstance(deadline, timedelta):
        return now_us + round(deadline.total_seconds() * _SECOND_US)
    if not isinstance(deadline, datetime):
        raise InvalidRequest(f"a deadline is a timedelta, or a datetime with a time zone, got {deadline!r:.200}")
    if deadline.tzinfo is None:
        raise InvalidRequest(f"the deadline {deadline.isoformat()} has no time zone: use datetime.now(UTC) + ...")
    return round(deadline.timestamp() * _SECOND_US)
