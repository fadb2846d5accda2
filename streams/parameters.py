"""Sampling parameters of a request: the ranges that are allowed, and what is filled in for those left out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from schemas.events import RequestSubmitted

MAX_TEMPERATURE = 2.0
MAX_STOP_STRINGS = 4
MAX_STOP_CHARS = 64
INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: HTTP status, class and stable code of the error, and the field at fault."""

    status: int
    error_type: str
    code: str
    message: str
    param: str | None = None

    @classmethod
    def invalid(cls, code: str, message: str, param: str) -> Self:
        """A 400: the request itself is wrong."""
        return cls(400, "invalid_request_error", code, message, param)


@dataclass(frozen=True, slots=True)
class Filled:
    """Parameters with nothing left open."""

    temperature: float
    top_p: float
    top_k: int


def check_parameters(request: RequestSubmitted) -> Filled | Refusal:
    """The parameters in range and filled in (temperature 1, top_p 1, top_k 0), or the first that is out of range."""
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    top_k = 0 if request.top_k is None else request.top_k
    # Each comparison is written so that NaN fails it.
    if not 0 <= temperature <= MAX_TEMPERATURE:
        return _out_of_range("temperature", temperature, f"from 0 to {MAX_TEMPERATURE:g}")
    if not 0 < top_p <= 1:
        return _out_of_range("top_p", top_p, "above 0 and at most 1")
    if not 0 <= top_k <= INT32_MAX:
        return _out_of_range("top_k", top_k, f"from 0 (keep all) to {INT32_MAX}")
    output = request.max_output_tokens
    if output is not None and not 1 <= output <= INT32_MAX:
        return _out_of_range("max_output_tokens", output, "at least 1")
    if request.seed is not None and not INT64_MIN <= request.seed <= INT64_MAX:
        return _out_of_range("seed", request.seed, "a signed 64-bit integer")
    return _check_stop(request.stop) or Filled(temperature, top_p, top_k)


def _check_stop(stop: tuple[str, ...]) -> Refusal | None:
    if len(stop) > MAX_STOP_STRINGS:
        return Refusal.invalid("invalid_value", f"there are {len(stop)} stop strings; use at most 4", "stop")
    for index, text in enumerate(stop):
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            allowed = f"from 1 to {MAX_STOP_CHARS}"
            message = f"stop[{index}] has {len(text)} characters; it must have {allowed}"
            return Refusal.invalid("invalid_value", message, f"stop[{index}]")
    return None


def _out_of_range(param: str, value: float, allowed: str) -> Refusal:
    return Refusal.invalid("invalid_value", f"{param} is {value}; it must be {allowed}", param)
