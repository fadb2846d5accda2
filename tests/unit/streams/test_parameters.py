"""Ranges of the sampling parameters, at their edges."""

from __future__ import annotations

import math
from typing import Any

import pytest

from streams.parameters import INT64_MAX, INT64_MIN, Filled, Refusal, check_parameters
from tests.unit.streams.samples import submitted


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
    ],
)
def test_the_edge_of_each_range_is_allowed(param: str, value: Any) -> None:
    assert isinstance(check_parameters(submitted(**{param: value})), Filled)


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
    ],
)
def test_what_is_out_of_range_is_a_400_that_names_the_parameter(param: str, value: Any) -> None:
    found = check_parameters(submitted(**{param: value}))

    assert isinstance(found, Refusal)
    assert (found.status, found.error_type, found.code) == (400, "invalid_request_error", "invalid_value")
    assert (found.param or "").startswith(param)
