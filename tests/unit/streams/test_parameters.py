"""Ranges of the sampling parameters, at their edges."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas.events import LogitBias, RequestSubmitted
from streams.parameters import (
    INT64_MAX,
    INT64_MIN,
    MAX_LOGIT_BIASES,
    Filled,
    Refusal,
    check_bias_tokens,
    check_engine,
    check_ranges,
    check_schema,
    fill,
)
from tests.unit.streams.samples import submitted


def biases(*pairs: tuple[int, float]) -> tuple[LogitBias, ...]:
    return tuple(LogitBias(token_id=token_id, bias=bias) for token_id, bias in pairs)


def checked(request: RequestSubmitted) -> Filled | Refusal:
    objection = check_schema(request, lambda json_schema: None if json_schema == "good" else "it is bad")
    return check_ranges(request) or objection or fill(request)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 2.0),
        ("top_p", 1e-9),
        ("top_p", 1.0),
        ("top_k", 0),
        ("max_output_tokens", 1),
        ("seed", INT64_MIN),
        ("seed", INT64_MAX),
        ("stop", ("a", "b", "c", "x" * 64)),
        ("stop", ()),
        ("min_p", 0.0),
        ("min_p", 1.0),
        ("repetition_penalty", 0.01),
        ("repetition_penalty", 2.0),
        ("presence_penalty", -2.0),
        ("presence_penalty", 2.0),
        ("frequency_penalty", -2.0),
        ("frequency_penalty", 2.0),
        ("top_logprobs", 0),
        ("top_logprobs", 20),
        ("logit_bias", biases((0, -100.0), (1, 100.0))),
        ("logit_bias", biases(*((n, 0.0) for n in range(MAX_LOGIT_BIASES)))),
        ("json_schema", "good"),
    ],
)
def test_the_edge_of_each_range_is_allowed(param: str, value: Any) -> None:
    assert isinstance(checked(submitted(**{param: value})), Filled)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("top_k", -1),
        ("max_output_tokens", 0),
        ("seed", INT64_MAX + 1),
        ("seed", INT64_MIN - 1),
        ("stop", ("a", "b", "c", "d", "e")),
        ("stop", ("",)),
        ("stop", ("x" * 65,)),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-45),
        ("repetition_penalty", 2.1),
        ("repetition_penalty", math.inf),
        ("presence_penalty", -2.1),
        ("presence_penalty", math.nan),
        ("frequency_penalty", 2.1),
        ("top_logprobs", -1),
        ("top_logprobs", 21),
        ("logit_bias", biases((0, -100.1))),
        ("logit_bias", biases((0, math.nan))),
        ("logit_bias", biases((7, 1.0), (8, 1.0), (7, 2.0))),
        ("logit_bias", biases(*((n, 0.0) for n in range(MAX_LOGIT_BIASES + 1)))),
    ],
)
def test_what_is_out_of_range_is_a_400_that_names_the_parameter(param: str, value: Any) -> None:
    found = checked(submitted(**{param: value}))

    assert isinstance(found, Refusal)
    assert (found.status, found.error_type, found.code) == (400, "invalid_request_error", "invalid_value")
    assert (found.param or "").startswith(param)


def test_what_is_left_out_is_filled_with_what_changes_nothing_and_the_rest_is_kept() -> None:
    assert checked(submitted()) == Filled(1.0, 1.0, 0, 0.0, 1.0, 0.0, 0.0)
    chosen = {
        "temperature": 0.0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": -1.0,
        "frequency_penalty": 0.5,
    }  # fmt: skip
    assert checked(submitted(**chosen)) == Filled(**chosen)  # type: ignore[arg-type]


def test_a_schema_that_is_objected_to_is_a_400_with_the_reason() -> None:
    found = checked(submitted(json_schema="bad"))

    assert isinstance(found, Refusal)
    assert (found.status, found.code, found.param) == (400, "invalid_json_schema", "json_schema")
    assert "it is bad" in found.message


@pytest.mark.parametrize(("token_id", "is_refused"), [(-1, True), (0, False), (256, False), (257, True)])
def test_only_tokens_of_the_vocabulary_can_be_biased(token_id: int, is_refused: bool) -> None:
    refusal = check_bias_tokens(biases((5, 1.0), (token_id, 1.0)), 257, "chat@v1")

    assert (refusal is not None) == is_refused
    if refusal is not None:
        assert (refusal.status, refusal.code, refusal.param) == (400, "invalid_value", "logit_bias")
        assert f"token {token_id}; the tokens of chat@v1 are 0 to 256" in refusal.message


@pytest.mark.parametrize(("param", "value"), [("json_schema", "{}"), ("top_logprobs", 0)])
def test_what_an_engine_cant_do_is_a_422_and_another_engine_does_it(param: str, value: Any) -> None:
    request = submitted(**{param: value})
    refusal = check_engine(request, "echo", "chat@v1")

    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.param) == (422, "unsupported_parameter", param)
    assert "chat@v1 is served by the echo engine" in refusal.message
    assert check_engine(request, "torch", "chat@v1") is None
    assert check_engine(submitted(), "echo", "chat@v1") is None


def test_an_adapter_of_a_version_whose_engine_runs_none_is_a_422() -> None:
    refusal = check_engine(submitted(), "echo", "chat@v1", "tone@v1")

    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.param) == (422, "unsupported_parameter", "model")
    assert "tone@v1 is for chat@v1, and the echo engine" in refusal.message
    assert check_engine(submitted(), "torch", "chat@v1", "tone@v1") is None
