"""From JSON bodies to requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.errors import GatewayError, InvalidRequest, UnsupportedParameter
from gateway.requests import ClientRequest, parse_chat_completion, parse_completion, parse_response_create
from schemas.codec import decode, encode
from schemas.events import Message, RequestSubmitted

Parse = Callable[[Mapping[str, Any]], ClientRequest]
RESPONSE = {"model": "chat", "input": "hi"}
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "chat", "prompt": "hi"}
EVERY: list[tuple[Parse, dict[str, Any]]] = [
    (parse_response_create, RESPONSE),
    (parse_chat_completion, CHAT),
    (parse_completion, COMPLETION),
]


@pytest.mark.parametrize(("parse", "body"), EVERY)
def test_the_shortest_body_of_each_endpoint_is_one_user_turn(parse: Parse, body: dict[str, Any]) -> None:
    request = parse(body)
    assert request.messages == (Message(role="user", content="hi"),)
    assert (request.model, request.temperature, request.stream, request.stop) == ("chat", None, False, ())


def test_all_that_is_served_reaches_the_event() -> None:
    request = parse_response_create(
        {
            "model": "chat@v3", "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0, "top_p": 0.5,
            "top_k": 4, "seed": 2**62, "stop": ["a", "b"], "user": "u", "metadata": {"k": "v"}, "stream": True,
            "input": [
                {"role": "developer", "content": "D"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
                {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "text", "text": "y"}]},
            ],
        }
    )  # fmt: skip
    event = request.submitted(request_id="r", tenant="t", at_us=2, received_at_us=1, deadline_at_us=3)
    assert decode(encode(event)) == event == RequestSubmitted(
        request_id="r", tenant="t", at_us=2, received_at_us=1, source="gateway", endpoint="responses", model="chat@v3",
        messages=(
            Message(role="system", content="Be brief."), Message(role="system", content="D"),
            Message(role="assistant", content="A"), Message(role="user", content="xy"),
        ),
        max_output_tokens=9, temperature=0.0, top_p=0.5, top_k=4, seed=2**62, stop=("a", "b"), deadline_at_us=3,
        end_user="u", metadata={"k": "v"},
    )  # fmt: skip
    assert request.stream


def test_chat_takes_the_newer_name_of_the_output_limit_first() -> None:
    assert parse_chat_completion({**CHAT, "max_tokens": 5}).max_output_tokens == 5
    assert parse_chat_completion({**CHAT, "max_tokens": 5, "max_completion_tokens": 6}).max_output_tokens == 6
    assert parse_chat_completion({**CHAT, "stream_options": {"include_usage": True}}).include_usage


def test_a_completion_takes_a_list_of_one_prompt() -> None:
    assert parse_completion({"model": "chat", "prompt": ["hi"]}) == parse_completion(COMPLETION)


@pytest.mark.parametrize(
    ("change", "param", "shown"),
    [
        ({"model": None}, "model", "required"),
        ({"model": 7}, "model", "7"),
        ({"model": ""}, "model", "required"),
        ({"input": None}, "input", "null"),
        ({"input": {"a": 1}}, "input", '{"a": 1}'),
        ({"input": ["hi"]}, "input[0]", '"hi"'),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role", '"king"'),
        ({"input": [{"role": "user"}]}, "input[0].content", "null"),
        ({"input": [{"role": "user", "content": [3]}]}, "input[0].content[0]", "3"),
        ({"input": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "input[0].content[0].text", "3"),
        ({"input": [{"role": "user", "content": [{"type": "text"}]}]}, "input[0].content[0].text", "null"),
        ({"input": "\ud800"}, "input", "lone surrogates"),
        ({"instructions": 1}, "instructions", "1"),
        ({"max_output_tokens": "12"}, "max_output_tokens", '"12"'),
        ({"max_output_tokens": 1.5}, "max_output_tokens", "1.5"),
        ({"max_output_tokens": True}, "max_output_tokens", "true"),
        ({"max_output_tokens": 2**31}, "max_output_tokens", "32 bits"),
        ({"seed": -(2**63) - 1}, "seed", "64 bits"),
        ({"temperature": "hot"}, "temperature", '"hot"'),
        ({"temperature": 10**400}, "temperature", "finite"),
        ({"top_p": False}, "top_p", "false"),
        ({"stop": 4}, "stop", "4"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "at most 4"),
        ({"stop": ["a", None]}, "stop", "null"),
        ({"stream": "yes"}, "stream", '"yes"'),
        ({"stream_options": True}, "stream_options", "true"),
        ({"metadata": []}, "metadata", "[]"),
        ({"metadata": {"k": 1}}, "metadata", '{"k": 1}'),
        ({"metadata": {"k" * 65: "v"}}, "metadata", "64"),
        ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "16"),
    ],
)
def test_a_wrong_value_is_told_with_its_name(change: dict[str, Any], param: str, shown: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_response_create({**RESPONSE, **change})
    assert caught.value.param == param
    assert shown in caught.value.message
    assert param in caught.value.message


@pytest.mark.parametrize(("parse", "body"), EVERY)
def test_an_unknown_key_is_refused_by_name(parse: Parse, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="temprature") as caught:
        parse({**body, "temprature": 1})
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "unknown_parameter", "temprature")


@pytest.mark.parametrize(
    ("endpoint", "name", "asks", "neutral"),
    [
        (0, "tools", [{"type": "function"}], []),
        (0, "previous_response_id", "resp_1", None),
        (0, "truncation", "auto", "disabled"),
        (0, "reasoning", {"effort": "high"}, {"effort": None}),
        (0, "text", {"format": {"type": "json_object"}}, {"format": {"type": "text"}}),
        (1, "n", 2, 1),
        (1, "n", True, None),
        (1, "logprobs", True, False),
        (1, "frequency_penalty", 0.5, 0.0),
        (1, "response_format", {"type": "json_schema"}, {"type": "text"}),
        (2, "echo", True, False),
        (2, "best_of", 3, 1),
    ],
)
def test_what_we_do_not_serve_is_taken_while_it_asks_for_nothing(
    endpoint: int, name: str, asks: object, neutral: object
) -> None:
    parse, body = EVERY[endpoint]
    assert parse({**body, name: neutral}) == parse(body)
    with pytest.raises(UnsupportedParameter) as caught:
        parse({**body, name: asks})
    assert (caught.value.status, caught.value.code, caught.value.param) == (422, "unsupported_parameter", name)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "tool", "content": "x"},
        {"type": "function_call_output", "output": "x"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
    ],
)
def test_turns_that_a_text_model_cant_read_are_unsupported(item: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedParameter):
        parse_response_create({"model": "chat", "input": [item]})


def test_several_prompts_in_one_completion_are_unsupported() -> None:
    with pytest.raises(UnsupportedParameter):
        parse_completion({"model": "chat", "prompt": ["a", "b"]})
    with pytest.raises(GatewayError, match="prompt must be"):
        parse_completion({"model": "chat", "prompt": [1]})


@pytest.mark.parametrize("name", ["store", "service_tier", "parallel_tool_calls", "prompt_cache_key"])
def test_harmless_parameters_are_taken(name: str) -> None:
    assert parse_response_create({**RESPONSE, name: "x"}) == parse_response_create(RESPONSE)
