"""Which parameters of OpenAI's API each endpoint serves, takes without effect, or must refuse.

A parameter that is not served is taken while it asks for nothing (`n: 1`, `tools: []`): clients and frameworks send
such defaults. One that asks for something is refused by name, so that no client believes it had an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import InvalidRequest, UnsupportedParameter
from gateway.fields import show

_COMMON = frozenset(
    {
        "model", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "logit_bias", "seed", "stop", "stream", "stream_options", "user",
    }
)  # fmt: skip
_HARMLESS = frozenset(
    {
        "store", "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key", "access_programs",
        "prompt_cache_options", "prompt_cache_retention", "metadata", "max_tool_calls",
    }
)  # fmt: skip
_NO_TOOLS: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "moderation": (),
    "verbosity": ("medium",),
}


@dataclass(frozen=True, slots=True)
class ParameterTable:
    """One endpoint. `neutral` maps a parameter that we don't serve to the values that ask for nothing (null always)."""

    served: frozenset[str]
    neutral: Mapping[str, tuple[Any, ...]]
    harmless: frozenset[str] = field(default=_HARMLESS)

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises InvalidRequest (unknown_parameter) and UnsupportedParameter, for the first one in the body."""
        for name, value in body.items():
            if name in self.served or name in self.harmless:
                continue
            if name not in self.neutral:
                shown = show(name)[1:-1]
                raise InvalidRequest(f"unknown parameter {shown!r}", code="unknown_parameter", param=shown)
            if value is not None and not any(_same(value, neutral) for neutral in self.neutral[name]):
                raise UnsupportedParameter(f"{name} is not supported, got {show(value)}; leave it out", param=name)


RESPONSES = ParameterTable(
    served=_COMMON | {"input", "instructions", "max_output_tokens", "background", "include", "top_logprobs", "text"},
    neutral={
        **_NO_TOOLS,
        "previous_response_id": (),
        "conversation": (),
        "prompt": (),
        "image": (),
        "context_management": ([],),
        "background_options": ({},),
        "truncation": ("disabled",),
        "reasoning": ({}, {"effort": None}, {"effort": None, "summary": None}, {"effort": "none"}),
    },
)
CHAT_COMPLETIONS = ParameterTable(
    served=_COMMON
    | {"messages", "max_tokens", "max_completion_tokens", "n", "logprobs", "top_logprobs", "response_format"},
    neutral={
        **_NO_TOOLS,
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "web_search_options": (),
        "reasoning_effort": ("none",),
    },
)
COMPLETIONS = ParameterTable(
    served=_COMMON | {"prompt", "max_tokens", "n", "logprobs", "response_format"},
    neutral={"best_of": (1,), "echo": (False,), "suffix": ("",)},
)
# Fields of the log go by these names at an endpoint: what the stages say about one is about the other.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "responses": {"json_schema": "text.format", "messages": "input"},
    "chat.completions": {"json_schema": "response_format", "max_output_tokens": "max_completion_tokens"},
    "completions": {
        "json_schema": "response_format",
        "max_output_tokens": "max_tokens",
        "messages": "prompt",
        "top_logprobs": "logprobs",
    },
}


def name_at(endpoint: str, param: str | None) -> str | None:
    """What a client of this endpoint calls a field of RequestSubmitted."""
    return param if param is None else _NAMES.get(endpoint, {}).get(param, param)


def _same(value: Any, neutral: Any) -> bool:
    """Equal, and not `true` for 1 or `false` for 0."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)
