"""Is this request well-formed, and can its model serve it? Pure: no clock, no log.

What comes out is either the request with everything filled in and its prompt as tokens, or the refusal that its
client sees (status, type and code of the published error table).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from models.errors import ChatTemplateMissingError, ChatTemplateRefusedError, TextNotEncodableError
from models.json_grammar import schema_objection
from models.tokenizer import Tokenizer
from schemas.events import ModelRegistered, RequestRejected, RequestSubmitted, RequestValidated
from streams.parameters import (
    Refusal,
    SchemaObjection,
    check_bias_tokens,
    check_engine,
    check_ranges,
    check_schema,
    fill,
)
from streams.route import Catalog, Unresolved, resolve

ROLES = ("system", "user", "assistant")
STAGE = "validate"

TokenizerOf = Callable[[ModelRegistered], Tokenizer]


@dataclass(frozen=True, slots=True)
class _Prompt:
    model: ModelRegistered
    token_ids: list[int]


def decide(
    request: RequestSubmitted,
    catalog: Catalog,
    tokenizer_of: TokenizerOf,
    *,
    now_us: int,
    schema_objection: SchemaObjection = schema_objection,
) -> RequestValidated | RequestRejected:
    """The request, validated or refused. The same arguments always give the same answer.

    now_us: when validation began; both times of the result are it, and whoever measures replaces `at_us`.
    tokenizer_of: the model's own tokenizer; what it raises beyond the three faults of a request is the server's
        fault and passes through.
    schema_objection: judges JSON schemas; the default takes as long as it takes.
    """
    refusal = refusal_at_sight(request, now_us=now_us) or check_schema(request, schema_objection)
    if refusal is not None:
        return rejection(request, refusal, now_us)
    prompt = _tokenize(request, catalog, tokenizer_of)
    if isinstance(prompt, Refusal):
        return rejection(request, prompt, now_us)
    output = _fit(request, prompt)
    if isinstance(output, Refusal):
        return rejection(request, output, now_us)
    return _validated(request, prompt, output, now_us)


def refusal_at_sight(request: RequestSubmitted, *, now_us: int) -> Refusal | None:
    """What `decide` refuses without looking at models or JSON schemas. Takes microseconds."""
    return _check_deadline(request, now_us) or _check_messages(request) or check_ranges(request)


def rejection(request: RequestSubmitted, refusal: Refusal, now_us: int) -> RequestRejected:
    """The refusal as the event that ends the request."""
    return RequestRejected(
        request_id=request.request_id,
        tenant=request.tenant,
        at_us=now_us,
        stage=STAGE,
        status=refusal.status,
        error_type=refusal.error_type,
        code=refusal.code,
        message=refusal.message,
        param=refusal.param,
        retry_after_ms=refusal.retry_after_ms,
    )


def derive_seed(request_id: str) -> int:
    """A seed for a request without one: the same for every reader of the log, in the range of a positive int64."""
    digest = hashlib.blake2b(b"seed\0" + request_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def _check_deadline(request: RequestSubmitted, now_us: int) -> Refusal | None:
    deadline = request.deadline_at_us
    if deadline is None or now_us < deadline:
        return None
    late_ms = (now_us - deadline) // 1000
    message = f"the deadline passed {late_ms} ms before validation; allow more time, or try again later"
    return Refusal(504, "timeout_error", "deadline_exceeded", message, "deadline")


def _check_messages(request: RequestSubmitted) -> Refusal | None:
    if not request.messages:
        return Refusal.invalid("empty_prompt", "there are no messages; send at least one of role user", "messages")
    for index, message in enumerate(request.messages):
        if message.role not in ROLES:
            text = f"messages[{index}].role is {message.role[:64]!r}; use one of {', '.join(ROLES)}"
            return Refusal.invalid("invalid_role", text, f"messages[{index}].role")
        if not message.content:
            text = f"messages[{index}].content is empty; leave the message out, or write something in it"
            return Refusal.invalid("empty_prompt", text, f"messages[{index}].content")
    if not any(message.role == "user" for message in request.messages):
        text = "no message has the role user; add what the model is to answer"
        return Refusal.invalid("no_user_message", text, "messages")
    return None


def _tokenize(request: RequestSubmitted, catalog: Catalog, tokenizer_of: TokenizerOf) -> _Prompt | Refusal:
    found = resolve(
        request.model, catalog, tenant=request.tenant, sticky=request.end_user or request.request_id
    )  # fmt: skip
    if isinstance(found, Unresolved):
        return Refusal(404, "not_found_error", "model_not_found", found.message, "model")
    version = found.model.model_version
    if (refusal := check_engine(request, found.model.engine, version, found.adapter)) is not None:
        return refusal
    tokenizer = tokenizer_of(found.model)
    if (refusal := check_bias_tokens(request.logit_bias, tokenizer.vocabulary_size, version)) is not None:
        return refusal
    # A template may print the date. The request's own time makes every validation of it tokenize alike.
    at = datetime.fromtimestamp(request.received_at_us / 1e6, UTC)
    try:
        token_ids = tokenizer.encode_chat(request.messages, at=at)
    except ChatTemplateMissingError as error:
        return Refusal.unsupported(str(error), "messages")
    except (ChatTemplateRefusedError, TextNotEncodableError) as error:
        return Refusal.invalid(error.code, str(error), "messages")
    if not token_ids:
        return Refusal.invalid("empty_prompt", "the messages come to no tokens; write something in them", "messages")
    return _Prompt(found.model, token_ids)


def _fit(request: RequestSubmitted, prompt: _Prompt) -> int | Refusal:
    """How many tokens may be generated: what was asked for, or the model's default cut to what the prompt leaves."""
    context, used = prompt.model.context_tokens, len(prompt.token_ids)
    room = context - used
    asked = request.max_output_tokens
    if room >= (1 if asked is None else asked):
        return min(prompt.model.default_max_output_tokens, room) if asked is None else asked
    version = prompt.model.model_version
    if room < 1:
        message = f"the prompt has {used} tokens and {version} holds {context}, answer included; shorten the prompt"
        return Refusal(422, "invalid_request_error", "context_length_exceeded", message, "messages")
    message = (
        f"the prompt has {used} tokens, max_output_tokens is {asked}, and {version} holds {context} together; "
        f"shorten the prompt, or ask for at most {room}"
    )
    return Refusal(422, "invalid_request_error", "context_length_exceeded", message, "max_output_tokens")


def _validated(request: RequestSubmitted, prompt: _Prompt, max_output_tokens: int, now_us: int) -> RequestValidated:
    filled = fill(request)
    return RequestValidated(
        request_id=request.request_id,
        tenant=request.tenant,
        at_us=now_us,
        started_at_us=now_us,
        received_at_us=request.received_at_us,
        submitted_at_us=request.at_us,
        model=request.model,
        tokenized_for=prompt.model.model_version,
        prompt_token_ids=tuple(prompt.token_ids),
        max_output_tokens=max_output_tokens,
        temperature=filled.temperature,
        top_p=filled.top_p,
        top_k=filled.top_k,
        seed=derive_seed(request.request_id) if request.seed is None else request.seed,
        stop=request.stop,
        deadline_at_us=request.deadline_at_us,
        end_user=request.end_user,
        endpoint=request.endpoint,
        min_p=filled.min_p,
        repetition_penalty=filled.repetition_penalty,
        presence_penalty=filled.presence_penalty,
        frequency_penalty=filled.frequency_penalty,
        logit_bias=request.logit_bias,
        top_logprobs=request.top_logprobs,
        json_schema=request.json_schema,
    )
