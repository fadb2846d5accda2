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

_TEXT_FORMAT: Any = {"type": "text"}
_SAMPLING = frozenset({"model", "temperature", "top_p", "top_k", "seed", "stop", "stream", "stream_options", "user"})
_HARMLESS = frozenset(
    {
        "store", "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key", "access_programs",
        "prompt_cache_options", "prompt_cache_retention", "metadata", "max_tool_calls",
    }
)  # fmt: skip
_NO_TOOLS: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "top_logprobs": (0,),
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
    served=_SAMPLING | {"input", "instructions", "max_output_tokens", "background"},
    neutral={
        **_NO_TOOLS,
        "previous_response_id": (),
        "conversation": (),
        "prompt": (),
        "image": (),
        "include": ([],),
        "context_management": ([],),
        "background_options": ({},),
        "truncation": ("disabled",),
        "reasoning": ({}, {"effort": None}, {"effort": None, "summary": None}, {"effort": "none"}),
        "text": (
            {},
            {"format": _TEXT_FORMAT},
            {"verbosity": "medium"},
            {"format": _TEXT_FORMAT, "verbosity": "medium"},
        ),
    },
)
CHAT_COMPLETIONS = ParameterTable(
    served=_SAMPLING | {"messages", "max_tokens", "max_completion_tokens"},
    neutral={
        **_NO_TOOLS,
        "n": (1,),
        "logprobs": (False,),
        "logit_bias": ({},),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "response_format": (_TEXT_FORMAT,),
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
    served=_SAMPLING | {"prompt", "max_tokens"},
    neutral={
        "n": (1,),
        "best_of": (1,),
        "echo": (False,),
        "suffix": ("",),
        "logprobs": (),
        "logit_bias": ({},),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
    },
)


def _same(value: Any, neutral: Any) -> bool:
    """Equal, and not `true` for 1 or `false` for 0."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)
