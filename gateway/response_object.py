"""The response object of OpenAI's Responses API, made from what the log holds and nothing else.

Any gateway makes the same object: what the client asked for comes from `RequestSubmitted`, the rest from the token
log. `instructions` is null (they went into the log as a system message) and so is `background`, a property of one
HTTP call.
"""

from __future__ import annotations

import math
from typing import Any

from gateway.json_output import text_format_of
from schemas.events import GenerationFinished, RequestRejected, RequestSubmitted, TerminalEvent
from schemas.ids import created_ms_of, response_id_of
from schemas.usage import charged_tokens


def response_object(
    request: RequestSubmitted,
    status: str,
    *,
    output: list[dict[str, Any]] | None = None,
    terminal: TerminalEvent | None = None,
    error: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The object with this status; `terminal` gives usage and completion time, `error` is for `failed`."""
    completed_at = terminal.at_us / 1_000_000 if terminal is not None and status == "completed" else None
    return {
        "id": response_id_of(request.request_id),
        "object": "response",
        "created_at": created_ms_of(request.request_id) // 1000,
        "status": status,
        "background": None,
        "completed_at": completed_at,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": request.max_output_tokens,
        "metadata": dict(request.metadata),
        "model": request.model,
        "output": output or [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": True,
        "temperature": _asked(request.temperature, 1.0),
        "text": {"format": text_format_of(request.json_schema)},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": _asked(request.top_p, 1.0),
        "truncation": "disabled",
        "usage": _usage(terminal),
        "user": request.end_user,
    }


def message_id_of(request_id: str) -> str:
    """Id of the one message that a response holds."""
    return response_id_of(request_id, "msg_")


def output_text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """A content part. logprobs: one object for each token, if they were asked for."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def message_item(request_id: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """The output item that holds the answer; status is in_progress, completed or incomplete."""
    return {
        "id": message_id_of(request_id),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def status_of(terminal: TerminalEvent) -> str:
    """completed, incomplete, cancelled or failed. A missed deadline is a failure: its answer is worthless."""
    if not isinstance(terminal, GenerationFinished):
        return "failed"
    return {"stop": "completed", "length": "incomplete", "cancelled": "cancelled"}.get(terminal.finish_reason, "failed")


def cached_tokens(terminal: TerminalEvent) -> int:
    """Of the prompt, those that the worker had already."""
    return terminal.cached_prompt_tokens if isinstance(terminal, GenerationFinished) else 0


def _asked(number: float | None, default: float) -> float | None:
    """None for what is not finite: JSON has no such number, and some service may have written one to the log."""
    if number is None:
        return default
    return number if math.isfinite(number) else None


def _usage(terminal: TerminalEvent | None) -> dict[str, Any] | None:
    if terminal is None or isinstance(terminal, RequestRejected):
        return None
    prompt, output = charged_tokens(terminal)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached_tokens(terminal), "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output,
    }
