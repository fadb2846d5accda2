"""Sampling parameters of a request: the ranges that are allowed, and what is filled in for those left out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Protocol, Self

from schemas.events import LogitBias, RequestSubmitted

MAX_STOP_STRINGS = 4
MAX_STOP_CHARS = 64
MAX_LOGIT_BIASES = 300
MAX_TOP_LOGPROBS = 20
INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# What an engine can't do though the answer would promise it; what is in no set, it can.
_BEYOND: Mapping[str, Mapping[str, str]] = {
    "echo": {"json_schema": "hold its answer to a JSON schema", "top_logprobs": "tell log probabilities"}
}
_WITHOUT_ADAPTERS = frozenset({"echo"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: HTTP status, class and stable code of the error, and the field at fault.

    retry_after_ms: when the same request can succeed; None if it can't, or nobody knows.
    """

    status: int
    error_type: str
    code: str
    message: str
    param: str | None = None
    retry_after_ms: int | None = None

    @classmethod
    def invalid(cls, code: str, message: str, param: str) -> Self:
        """A 400: the request itself is wrong."""
        return cls(400, "invalid_request_error", code, message, param)

    @classmethod
    def unsupported(cls, message: str, param: str) -> Self:
        """A 422: the request is well-formed, and the model that it names can't serve it."""
        return cls(422, "invalid_request_error", "unsupported_parameter", message, param)


@dataclass(frozen=True, slots=True)
class Filled:
    """Parameters with nothing left open; the defaults change nothing about what the model says."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class _Range:
    """Allowed are low <= value <= high, low itself only if it is not `open`. NaN is in no range."""

    low: float
    high: float
    allowed: str
    open: bool = False

    def holds(self, value: float) -> bool:
        return (self.low < value if self.open else self.low <= value) and value <= self.high


_RANGES: Mapping[str, _Range] = {
    "temperature": _Range(0, 2, "from 0 to 2"),
    "top_p": _Range(0, 1, "above 0 and at most 1", open=True),
    "top_k": _Range(0, INT32_MAX, f"from 0 (keep all) to {INT32_MAX}"),
    "min_p": _Range(0, 1, "from 0 (keep all) to 1"),
    "repetition_penalty": _Range(0.01, 2, "from 0.01 to 2"),  # logits are divided by it, and must stay finite
    "presence_penalty": _Range(-2, 2, "from -2 to 2"),
    "frequency_penalty": _Range(-2, 2, "from -2 to 2"),
    "top_logprobs": _Range(0, MAX_TOP_LOGPROBS, f"from 0 to {MAX_TOP_LOGPROBS}"),
    "max_output_tokens": _Range(1, INT32_MAX, "at least 1"),
    "seed": _Range(INT64_MIN, INT64_MAX, "a signed 64-bit integer"),
}
_BIAS = _Range(-100, 100, "from -100 to 100")

SchemaObjection = Callable[[str], str | None]
"""Why no answer can be held to a JSON schema; None if one can."""

_FILLED = tuple(field.name for field in fields(Filled))


class Demanding(Protocol):
    """A request, as far as not every engine can serve it."""

    @property
    def top_logprobs(self) -> int | None: ...

    @property
    def json_schema(self) -> str | None: ...


def check_ranges(request: RequestSubmitted) -> Refusal | None:
    """Every parameter that needs no model and no compiler to be judged is in range, or the first that is not."""
    for param, allowed in _RANGES.items():
        value = getattr(request, param)
        if value is not None and not allowed.holds(value):
            return _out_of_range(param, value, allowed.allowed)
    return _check_stop(request.stop) or _check_biases(request.logit_bias)


def check_schema(request: RequestSubmitted, objection_to: SchemaObjection) -> Refusal | None:
    """An answer can be held to the request's JSON schema, if it has one."""
    reason = None if request.json_schema is None else objection_to(request.json_schema)
    if reason is None:
        return None
    message = f"no answer can be held to this JSON schema: {reason}"
    return Refusal.invalid("invalid_json_schema", message, "json_schema")


def fill(request: RequestSubmitted) -> Filled:
    """What the request says and, where it says nothing, the defaults."""
    given = {name: getattr(request, name) for name in _FILLED}
    return Filled(**{name: value for name, value in given.items() if value is not None})


def check_bias_tokens(biases: tuple[LogitBias, ...], vocabulary_size: int, version: str) -> Refusal | None:
    """Every token of logit_bias is one of the model's."""
    for bias in biases:
        if not 0 <= bias.token_id < vocabulary_size:
            message = f"logit_bias names token {bias.token_id}; the tokens of {version} are 0 to {vocabulary_size - 1}"
            return Refusal.invalid("invalid_value", message, "logit_bias")
    return None


def check_engine(request: Demanding, engine: str, version: str, adapter: str | None = None) -> Refusal | None:
    """The engine of this version can do what the answer promises, and with this adapter."""
    if adapter is not None and engine in _WITHOUT_ADAPTERS:
        message = f"{adapter} is for {version}, and the {engine} engine that serves it runs no adapters"
        return Refusal.unsupported(f"{message}; ask for {version}", "model")
    for param, what in _BEYOND.get(engine, {}).items():
        if getattr(request, param) is not None:
            message = f"{version} is served by the {engine} engine, which does not {what}; leave it out"
            return Refusal.unsupported(message, param)
    return None


def _check_stop(stop: tuple[str, ...]) -> Refusal | None:
    if len(stop) > MAX_STOP_STRINGS:
        message = f"there are {len(stop)} stop strings; use at most {MAX_STOP_STRINGS}"
        return Refusal.invalid("invalid_value", message, "stop")
    for index, text in enumerate(stop):
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            allowed = f"from 1 to {MAX_STOP_CHARS}"
            message = f"stop[{index}] has {len(text)} characters; it must have {allowed}"
            return Refusal.invalid("invalid_value", message, f"stop[{index}]")
    return None


def _check_biases(biases: tuple[LogitBias, ...]) -> Refusal | None:
    if len(biases) > MAX_LOGIT_BIASES:
        message = f"logit_bias has {len(biases)} tokens; use at most {MAX_LOGIT_BIASES}"
        return Refusal.invalid("invalid_value", message, "logit_bias")
    seen: set[int] = set()
    for bias in biases:
        if not _BIAS.holds(bias.bias):
            return _out_of_range("logit_bias", bias.bias, _BIAS.allowed, f" for token {bias.token_id}")
        if bias.token_id in seen:
            return Refusal.invalid("invalid_value", f"logit_bias names token {bias.token_id} twice", "logit_bias")
        seen.add(bias.token_id)
    return None


def _out_of_range(param: str, value: float, allowed: str, where: str = "") -> Refusal:
    return Refusal.invalid("invalid_value", f"{param} is {value}{where}; it must be {allowed}", param)
