"""From JSON bodies to requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import GatewayError, InvalidRequest, UnsupportedParameter
from gateway.requests import MAX_CHOICES, ClientRequest, parse_chat_completion, parse_completion, parse_response_create
from schemas.codec import decode, encode
from schemas.events import LogitBias, Message, RequestSubmitted

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
            "min_p": 0.1, "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 0.5,
            "logit_bias": {"7": -100, "256": 0.5}, "include": ["message.output_text.logprobs"], "top_logprobs": 3,
            "text": {"format": {"type": "json_object"}, "verbosity": "medium"},
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
        end_user="u", metadata={"k": "v"}, min_p=0.1, repetition_penalty=1.5, presence_penalty=-1.0,
        frequency_penalty=0.5, logit_bias=(LogitBias(token_id=7, bias=-100.0), LogitBias(token_id=256, bias=0.5)),
        top_logprobs=3, json_schema='{"type":"object"}',
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
        ({"min_p": "low"}, "min_p", '"low"'),
        ({"presence_penalty": []}, "presence_penalty", "[]"),
        ({"logit_bias": []}, "logit_bias", "[]"),
        ({"logit_bias": {"7": "x"}}, "logit_bias.7", '"x"'),
        ({"logit_bias": {"7": None}}, "logit_bias", '{"7": null}'),
        ({"logit_bias": {"-7": 1}}, "logit_bias", '{"-7": 1}'),
        ({"logit_bias": {"\u0667": 1}}, "logit_bias", "by token ids"),
        ({"logit_bias": {"4294967296": 1}}, "logit_bias", "4294967296"),
        ({"include": "message.output_text.logprobs"}, "include", "a list"),
        ({"top_logprobs": 1.5, "include": ["message.output_text.logprobs"]}, "top_logprobs", "1.5"),
        ({"top_logprobs": 2}, "top_logprobs", "include has no"),
        ({"text": "json"}, "text", '"json"'),
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
        (0, "include", ["reasoning.encrypted_content"], []),
        (1, "modalities", ["audio"], ["text"]),
        (1, "reasoning_effort", "high", "none"),
        (2, "suffix", "end", ""),
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


@pytest.mark.parametrize(
    ("endpoint", "change", "wanted"),
    [
        (0, {}, None),
        (0, {"top_logprobs": 0}, None),
        (0, {"include": ["message.output_text.logprobs"]}, 0),
        (1, {"logprobs": False, "top_logprobs": 0}, None),
        (1, {"logprobs": True}, 0),
        (1, {"logprobs": True, "top_logprobs": 20}, 20),
        (2, {"logprobs": None}, None),
        (2, {"logprobs": 0}, 0),
        (2, {"logprobs": 5}, 5),
    ],
)
def test_each_endpoint_has_its_own_way_to_ask_for_log_probabilities(
    endpoint: int, change: dict[str, Any], wanted: int | None
) -> None:
    parse, body = EVERY[endpoint]
    assert parse({**body, **change}).top_logprobs == wanted


@pytest.mark.parametrize(
    ("endpoint", "change", "param"),
    [
        (1, {"top_logprobs": 2}, "top_logprobs"),
        (1, {"logprobs": 1}, "logprobs"),
        (2, {"logprobs": True}, "logprobs"),
        (2, {"logprobs": 6}, "logprobs"),
        (2, {"logprobs": -1}, "logprobs"),
        (1, {"n": 0}, "n"),
        (1, {"n": MAX_CHOICES + 1}, "n"),
        (2, {"n": True}, "n"),
    ],
)
def test_what_can_not_be_asked_for_is_a_400(endpoint: int, change: dict[str, Any], param: str) -> None:
    parse, body = EVERY[endpoint]
    with pytest.raises(InvalidRequest) as caught:
        parse({**body, **change})
    assert caught.value.param == param
    assert param in caught.value.message


def test_the_responses_api_has_no_choices() -> None:
    with pytest.raises(InvalidRequest, match="unknown parameter 'n'"):
        parse_response_create({**RESPONSE, "n": 2})


def test_choices_have_seeds_of_their_own_and_are_alike_otherwise() -> None:
    request = parse_chat_completion({**CHAT, "n": 3, "seed": 2**63 - 2, "temperature": 0.5})
    assert [request.choice(index).seed for index in range(3)] == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert all(replace(request.choice(n), seed=None) == replace(request, seed=None, n=1) for n in range(3))
    assert parse_chat_completion({**CHAT, "n": 2}).choice(1).seed is None


def test_vllms_word_for_every_token_is_ours() -> None:
    assert parse_chat_completion({**CHAT, "top_k": -1}).top_k == 0
    assert parse_chat_completion({**CHAT, "top_k": -2}).top_k == -2, "the validate stage refuses it"
