"""Builders of token-log events, for tests of the gateway."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from schemas.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Message,
    RequestAdmitted,
    RequestRejected,
    RequestSubmitted,
    TokenLogprob,
    TokenLogprobs,
    TokensGenerated,
)
from schemas.ids import new_request_id

AT_US = 1_796_000_000_000_000
MODEL = "chat@v1"


def submitted(number: int = 1, **fields: object) -> RequestSubmitted:
    """A request; equal numbers have equal ids."""
    base = RequestSubmitted(
        request_id=new_request_id(now_ms=AT_US // 1000, partition=3, entropy=number),
        tenant="acme",
        at_us=AT_US,
        received_at_us=AT_US,
        source="gateway",
        endpoint="responses",
        model="chat",
        messages=(Message(role="user", content="hi"),),
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def admitted(request: RequestSubmitted) -> RequestAdmitted:
    return RequestAdmitted(
        request_id=request.request_id, tenant=request.tenant, at_us=AT_US, reserved_tokens=64, limit_requests=60,
        remaining_requests=59, reset_requests_ms=1000, limit_tokens=9000, remaining_tokens=8936, reset_tokens_ms=427,
    )  # fmt: skip


def started(request: RequestSubmitted, attempt: int = 1) -> GenerationStarted:
    return GenerationStarted(
        request_id=request.request_id, tenant=request.tenant, attempt=attempt, at_us=AT_US, pulled_at_us=AT_US,
        worker="w", deployment="chat-v1", model_version=MODEL, prompt_tokens=3,
    )  # fmt: skip


def token(request: RequestSubmitted, index: int, text: str, offset: int, attempt: int = 1) -> TokensGenerated:
    return TokensGenerated(
        request_id=request.request_id, tenant=request.tenant, attempt=attempt, at_us=AT_US, index=index,
        token_ids=(index,), text_offset_chars=offset, text=text,
    )  # fmt: skip


def likely(text: str, logprob: float = -0.5, **others: float) -> TokenLogprobs:
    """A token with this text; others: the text of likelier ones, with theirs."""
    top = tuple(TokenLogprob(token_id=id_, utf8=t.encode(), logprob=lp) for id_, (t, lp) in enumerate(others.items()))
    return TokenLogprobs(logprob=logprob, utf8=text.encode(), top=top)


def finished(
    request: RequestSubmitted, output_tokens: int, reason: str = "stop", attempt: int = 1
) -> GenerationFinished:
    return GenerationFinished(
        request_id=request.request_id, tenant=request.tenant, attempt=attempt, at_us=AT_US, worker="w",
        deployment="chat-v1", model_version=MODEL, finish_reason=reason, prompt_tokens=3, output_tokens=output_tokens,
        first_token_at_us=AT_US if output_tokens else None, cached_prompt_tokens=2,
    )  # fmt: skip


def rejected(
    request: RequestSubmitted, status: int, error_type: str, code: str, retry_after_ms: int | None = None
) -> RequestRejected:
    return RequestRejected(
        request_id=request.request_id, tenant=request.tenant, at_us=AT_US, stage="quota", status=status,
        error_type=error_type, code=code, message=f"refused: {code}", param="model", retry_after_ms=retry_after_ms,
    )  # fmt: skip


def tokens(request: RequestSubmitted, words: Iterable[str], index: int = 0, offset: int = 0) -> list[TokensGenerated]:
    """One event for each word."""
    events = []
    for word in words:
        events.append(token(request, index, word, offset))
        index, offset = index + 1, offset + len(word)
    return events


def failed(request: RequestSubmitted, output_tokens: int = 0, attempt: int = 1) -> GenerationFailed:
    return GenerationFailed(
        request_id=request.request_id, tenant=request.tenant, attempt=attempt, at_us=AT_US, worker="w",
        deployment="chat-v1", model_version=MODEL, status=500, error_type="server_error", code="engine_failed",
        message="the engine failed", prompt_tokens=3, output_tokens=output_tokens,
    )  # fmt: skip
