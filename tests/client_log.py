"""Submissions and token-log events, as headrace_client has them: its copy of the contract is a package of its own."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_client.contract.codec import SINGLE_OBJECT, encode
from headrace_client.contract.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    Message,
    RequestAdmitted,
    RequestRejected,
    RequestSubmitted,
    TokensGenerated,
)
from headrace_client.contract.ids import new_request_id
from headrace_client.submission import Submission

AT_US = 1_796_000_000_000_000


class NoWaiter:
    def wait_delivered(self, submission: Submission, timeout: float | None) -> None:
        raise AssertionError("nothing is on its way")


def submission(number: int = 1, tenant: str = "acme") -> Submission:
    """Equal numbers have equal request ids."""
    request_id = new_request_id(now_ms=AT_US // 1000, partition=3, entropy=number)
    request = RequestSubmitted(
        request_id=request_id, tenant=tenant, at_us=AT_US, received_at_us=AT_US, source="test", model="chat",
        messages=(Message(role="user", content="hi"),),
    )  # fmt: skip
    return Submission(request_id, tenant, 3, encode(request), SINGLE_OBJECT, NoWaiter())


def admitted(of: Submission) -> RequestAdmitted:
    return RequestAdmitted(
        request_id=of.request_id, tenant=of.tenant, at_us=AT_US, reserved_tokens=64, limit_requests=60,
        remaining_requests=59, reset_requests_ms=1000, limit_tokens=9000, remaining_tokens=8936, reset_tokens_ms=427,
    )  # fmt: skip


def started(of: Submission, attempt: int = 1) -> GenerationStarted:
    return GenerationStarted(
        request_id=of.request_id, tenant=of.tenant, attempt=attempt, at_us=AT_US, pulled_at_us=AT_US, worker="w",
        deployment="chat-v1", model_version="chat@v1", prompt_tokens=3,
    )  # fmt: skip


def tokens(of: Submission, words: Iterable[str], attempt: int = 1) -> list[TokensGenerated]:
    """One event for each word, from the first token on."""
    events, offset = [], 0
    for index, word in enumerate(words):
        events.append(
            TokensGenerated(
                request_id=of.request_id, tenant=of.tenant, attempt=attempt, at_us=AT_US, index=index,
                token_ids=(index,), text_offset_chars=offset, text=word,
            )
        )  # fmt: skip
        offset += len(word)
    return events


def finished(of: Submission, output_tokens: int, reason: str = "stop", attempt: int = 1) -> GenerationFinished:
    return GenerationFinished(
        request_id=of.request_id, tenant=of.tenant, attempt=attempt, at_us=AT_US, worker="w", deployment="chat-v1",
        model_version="chat@v1", finish_reason=reason, prompt_tokens=3, output_tokens=output_tokens,
    )  # fmt: skip


def failed(of: Submission) -> GenerationFailed:
    return GenerationFailed(
        request_id=of.request_id, tenant=of.tenant, attempt=1, at_us=AT_US, worker="w", deployment="chat-v1",
        model_version="chat@v1", status=500, error_type="server_error", code="engine_failed",
        message="the engine failed", prompt_tokens=3, output_tokens=1,
    )  # fmt: skip


def rejected(of: Submission, status: int = 429, retry_after_ms: int | None = 1500) -> RequestRejected:
    return RequestRejected(
        request_id=of.request_id, tenant=of.tenant, at_us=AT_US, stage="quota", status=status,
        error_type="rate_limit_error", code="requests_per_minute", message="slow down", param="model",
        retry_after_ms=retry_after_ms,
    )  # fmt: skip
