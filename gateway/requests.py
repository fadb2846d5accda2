"""From JSON bodies to `RequestSubmitted`: shape and types are checked here, meaning by the validate stage.

The same stage checks what other services write to the log, so ranges, the model's name and the context length are
its business; here a body only has to become an event that means what the client wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.errors import InvalidRequest, UnsupportedParameter
from gateway.fields import Fields, show
from gateway.json_output import response_format_schema, text_format_schema
from gateway.logprobs import asked_of_chat, asked_of_completion, asked_of_response
from gateway.parameters import CHAT_COMPLETIONS, COMPLETIONS, RESPONSES
from schemas.events import LogitBias, Message, RequestSubmitted

MAX_STOP_STRINGS = 4
MAX_CHOICES = 8
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_UNSERVED_ROLES = frozenset({"tool", "function"})
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """What a client asked for, before it has an id.

    n: how many answers are wanted; each is a request of its own, with the seed behind the one before it.
    stream, include_usage, background: how this one HTTP call wants its answer; they are not part of the event.
    """

    endpoint: str
    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    stop: tuple[str, ...]
    end_user: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[LogitBias, ...] = ()
    top_logprobs: int | None = None
    json_schema: str | None = None
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    background: bool = False

    def choice(self, index: int) -> ClientRequest:
        """The request for one of the `n` answers: the same but for a seed of its own, where there is one."""
        seed = self.seed
        if seed is not None:
            seed = (seed + index + (1 << 63)) % (1 << 64) - (1 << 63)  # behind the highest comes the lowest
        return replace(self, seed=seed, n=1)

    def submitted(
        self, *, request_id: str, tenant: str, at_us: int, received_at_us: int, deadline_at_us: int | None = None
    ) -> RequestSubmitted:
        """The event."""
        return RequestSubmitted(
            request_id=request_id,
            tenant=tenant,
            at_us=at_us,
            received_at_us=received_at_us,
            source="gateway",
            endpoint=self.endpoint,
            model=self.model,
            messages=self.messages,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self.seed,
            stop=self.stop,
            deadline_at_us=deadline_at_us,
            end_user=self.end_user,
            metadata=self.metadata,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=self.logit_bias,
            top_logprobs=self.top_logprobs,
            json_schema=self.json_schema,
        )


def parse_response_create(body: Mapping[str, Any]) -> ClientRequest:
    """The body of POST /v1/responses, or of a `response.create` message without its type.

    Raises InvalidRequest and UnsupportedParameter, as all parsers here.
    """
    RESPONSES.check(body)
    fields = Fields(body)
    given = fields.raw("input")
    if isinstance(given, str):
        messages = [Message(role="user", content=fields.text("input") or "")]
    elif isinstance(given, list):
        messages = [_message(item, f"input[{index}]") for index, item in enumerate(given)]
    else:
        fields.wrong("input", given, "a string or a list of messages")
    instructions = fields.text("instructions")
    if instructions:
        messages.insert(0, Message(role="system", content=instructions))
    return _request(
        fields, "responses", messages, fields.integer("max_output_tokens", 32),
        top_logprobs=asked_of_response(fields), json_schema=text_format_schema(fields),
    )  # fmt: skip


def parse_chat_completion(body: Mapping[str, Any]) -> ClientRequest:
    """The body of POST /v1/chat/completions."""
    CHAT_COMPLETIONS.check(body)
    fields = Fields(body)
    given = fields.raw("messages")
    if not isinstance(given, list):
        fields.wrong("messages", given, "a list of messages")
    messages = [_message(item, f"messages[{index}]") for index, item in enumerate(given)]
    newer, older = fields.integer("max_completion_tokens", 32), fields.integer("max_tokens", 32)
    return _request(
        fields, "chat.completions", messages, older if newer is None else newer,
        top_logprobs=asked_of_chat(fields), json_schema=response_format_schema(fields), n=_choices(fields),
    )  # fmt: skip


def parse_completion(body: Mapping[str, Any]) -> ClientRequest:
    """The body of POST /v1/completions. The prompt is one user turn: the model's chat template still applies."""
    COMPLETIONS.check(body)
    fields = Fields(body)
    prompt = fields.raw("prompt")
    if isinstance(prompt, list) and len(prompt) > 1:
        raise UnsupportedParameter(f"prompt takes one prompt a request, got {len(prompt)}", param="prompt")
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and prompt and isinstance(prompt[0], str)):
        fields.wrong("prompt", prompt, "a string or a list of one string")
    (text,) = fields.texts("prompt", 1)
    return _request(
        fields, "completions", [Message(role="user", content=text)], fields.integer("max_tokens", 32),
        top_logprobs=asked_of_completion(fields), json_schema=response_format_schema(fields), n=_choices(fields),
    )  # fmt: skip


def _request(
    fields: Fields,
    endpoint: str,
    messages: list[Message],
    max_output_tokens: int | None,
    *,
    top_logprobs: int | None,
    json_schema: str | None,
    n: int = 1,
) -> ClientRequest:
    end_user = fields.text("safety_identifier") or fields.text("user")
    return ClientRequest(
        endpoint=endpoint,
        model=fields.required_text("model"),
        messages=tuple(messages),
        max_output_tokens=max_output_tokens,
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=_top_k(fields),
        seed=fields.integer("seed", 64),
        stop=fields.texts("stop", MAX_STOP_STRINGS),
        end_user=end_user,
        metadata=fields.labels("metadata"),
        min_p=fields.number("min_p"),
        repetition_penalty=fields.number("repetition_penalty"),
        presence_penalty=fields.number("presence_penalty"),
        frequency_penalty=fields.number("frequency_penalty"),
        logit_bias=_logit_bias(fields),
        top_logprobs=top_logprobs,
        json_schema=json_schema,
        n=n,
        stream=fields.flag("stream"),
        include_usage=_include_usage(fields),
        background=fields.flag("background"),
    )


def _choices(fields: Fields) -> int:
    n = fields.integer("n", 32)
    if n is None:
        return 1
    if not 1 <= n <= MAX_CHOICES:
        raise InvalidRequest(f"n is {n}; it must be from 1 to {MAX_CHOICES}", param="n")
    return n


def _top_k(fields: Fields) -> int | None:
    top_k = fields.integer("top_k", 32)
    return 0 if top_k == -1 else top_k  # vLLM's word for all


def _logit_bias(fields: Fields) -> tuple[LogitBias, ...]:
    """An object of numbers by token id; ranges are for the validate stage, which has the vocabulary."""
    given = fields.inner("logit_bias")
    if given is None:
        return ()
    biases = []
    for name in fields.raw("logit_bias"):
        bias = given.number(name)
        if not (name.isascii() and name.isdigit() and len(name) <= 10 and int(name) < 1 << 31) or bias is None:
            fields.wrong("logit_bias", {name: given.raw(name)}, 'numbers by token ids, such as {"50256": -100}')
        biases.append(LogitBias(token_id=int(name), bias=bias))
    return tuple(biases)


def _include_usage(fields: Fields) -> bool:
    options = fields.inner("stream_options")
    return options is not None and options.flag("include_usage")


def _message(item: Any, path: str) -> Message:
    """One turn. A turn of a kind that a text model can't read is unsupported, not invalid."""
    if not isinstance(item, dict):
        raise InvalidRequest(f"{path} must be a message object, got {show(item)}", code="invalid_type", param=path)
    fields = Fields(item, f"{path}.")
    kind = fields.text("type")
    role = fields.text("role")
    if kind not in (None, "message") or role in _UNSERVED_ROLES or item.get("tool_calls"):
        what = kind if kind not in (None, "message") else f"a message of role {role}"
        raise UnsupportedParameter(f"{path}: {what} is not supported, only text messages are", param=path)
    if role not in _ROLES:
        fields.wrong("role", item.get("role"), "system, developer, user or assistant")
    return Message(role=_ROLES[role], content=_content(item.get("content"), fields, path))


def _content(content: Any, fields: Fields, path: str) -> str:
    if isinstance(content, str):
        return fields.text("content") or ""
    if not isinstance(content, list):
        fields.wrong("content", content, "a string or a list of text parts")
    return "".join(_part(part, f"{path}.content[{index}]") for index, part in enumerate(content))


def _part(part: Any, path: str) -> str:
    if not isinstance(part, dict):
        raise InvalidRequest(f"{path} must be a text part, got {show(part)}", code="invalid_type", param=path)
    kind = Fields(part, f"{path}.").text("type")
    if kind not in _TEXT_PARTS:
        raise UnsupportedParameter(f"{path}: parts of type {kind} are not supported, only text is", param=path)
    text = Fields(part, f"{path}.").text("text")
    if text is None:
        Fields(part, f"{path}.").wrong("text", None, "a string")
    return text
