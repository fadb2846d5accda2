from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import headrace_client
from headrace_client.stream_events import ResponseCancelled, ResponseCompleted, ResponseEnd, ResponseFailed
from headrace_client.stream_events import ResponseIncomplete as Incomplete
from infra.cli.chat import chat, gateway_errors, problem_with
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


class Recording:
    """A stream that refuses all it is asked for, and remembers it."""

    asked: list[dict[str, Any]]

    def __init__(self, url: str, *, api_key: str) -> None:
        Recording.asked = []

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def create(self, **request: Any) -> None:
        self.asked.append(request)
        raise headrace_client.RequestRefused("not now", status=503, type="overloaded_error", code="no_capacity")


@pytest.mark.parametrize(
    ("arguments", "sampling"),
    [
        ([], {"temperature": 0.0, "seed": None}),
        (["--temperature", "0.7", "--seed", "5"], {"temperature": 0.7, "seed": 5}),
    ],
)
def test_it_is_greedy_unless_a_temperature_is_given(
    arguments: list[str], sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.cli.chat.SyncStream", Recording)
    monkeypatch.setenv("HEADRACE_GATEWAY_URL", URL)
    monkeypatch.setenv("HEADRACE_API_KEY", "key")
    result = CliRunner().invoke(chat, arguments, input="Hello\n")
    assert result.exit_code == 0, result.output
    assert "[failed: not now]" in result.output
    assert [{name: request[name] for name in sampling} for request in Recording.asked] == [sampling]
