from __future__ import annotations

from typing import Any

import pytest

import headrace_client
from headrace_client.stream_events import ResponseCancelled, ResponseCompleted, ResponseEnd, ResponseFailed
from headrace_client.stream_events import ResponseIncomplete as Incomplete
from infra.cli.chat import gateway_errors, problem_with
from infra.errors import GatewayRefused, GatewayUnreachable

URL = "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("end", "response", "problem"),
    [
        (ResponseCompleted, {}, ""),
        (ResponseCancelled, {}, "cancelled"),
        (Incomplete, {"incomplete_details": {"reason": "max_output_tokens"}}, "incomplete: max_output_tokens"),
        (ResponseFailed, {"error": {"message": "no such model"}}, "failed: no such model"),
    ],
)
def test_an_answer_that_is_not_whole_says_why(end: type[ResponseEnd], response: dict[str, Any], problem: str) -> None:
    assert problem_with(end("resp_1", 1, response)) == problem


def test_a_gateway_that_does_not_answer_or_refuses_says_what_to_set_or_start() -> None:
    with pytest.raises(GatewayUnreachable, match="headrace up"), gateway_errors(URL):
        raise headrace_client.GatewayUnreachable("refused")
    with pytest.raises(GatewayRefused, match="HEADRACE_API_KEY"), gateway_errors(URL):
        raise headrace_client.GatewayRefused("who are you?", status=401)
