from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace_client.contract.codec import decode, encode
from headrace_client.contract.events import LogitBias, Message, RequestSubmitted
from headrace_client.contract.ids import new_request_id
from headrace_client.errors import InvalidRequest
from headrace_client.requests import build_request, check_fields

NOW_US = 1_796_000_000_000_000
ID = new_request_id(now_ms=NOW_US // 1000, partition=1, entropy=7)


def built(**fields: Any) -> RequestSubmitted:
    return build_request({"tenant": "acme", "model": "chat", **fields}, request_id=ID, now_us=NOW_US, source="svc")  # type: ignore[typeddict-item]


def test_the_event_is_the_one_that_its_constructor_makes_and_can_be_written() -> None:
    request = built(
        prompt="hi", max_output_tokens=5, temperature=0.5, top_p=0.9, top_k=3, seed=1, stop="x", end_user="u",
        metadata={"k": "v"}, deadline=timedelta(seconds=2), min_p=0.1, repetition_penalty=1.1, presence_penalty=0.5,
        frequency_penalty=-0.5, logit_bias={7: -100.0}, top_logprobs=2, json_schema='{"type":"object"}',
    )  # fmt: skip

    assert request == RequestSubmitted(
        request_id=ID, tenant="acme", at_us=NOW_US, received_at_us=NOW_US, source="svc", model="chat",
        messages=(Message(role="user", content="hi"),), max_output_tokens=5, temperature=0.5, top_p=0.9, top_k=3,
        seed=1, stop=("x",), deadline_at_us=NOW_US + 2_000_000, end_user="u", metadata={"k": "v"}, min_p=0.1,
        repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=-0.5, top_logprobs=2,
        logit_bias=(LogitBias(token_id=7, bias=-100.0),), json_schema='{"type":"object"}',
    )  # fmt: skip
    assert decode(encode(request)) == request


def test_what_is_left_out_takes_its_default() -> None:
    assert built(prompt="hi") == RequestSubmitted(
        request_id=ID, tenant="acme", at_us=NOW_US, received_at_us=NOW_US, source="svc", model="chat",
        messages=(Message(role="user", content="hi"),),
    )  # fmt: skip


def test_messages_are_dicts_or_events() -> None:
    turns = (Message(role="system", content="be brief"), Message(role="user", content="hi"))
    assert built(messages=turns).messages == turns
    assert built(messages=[{"role": "system", "content": "be brief"}, turns[1]]).messages == turns


def test_no_stop_string_is_none() -> None:
    assert built(prompt="x", stop=None).stop == ()


def test_a_deadline_is_a_duration_or_a_time_with_a_zone() -> None:
    at = datetime.fromtimestamp(NOW_US / 1e6 + 60, UTC)
    assert built(prompt="x", deadline=at).deadline_at_us == NOW_US + 60_000_000
    with pytest.raises(InvalidRequest, match="no time zone"):
        built(prompt="x", deadline=at.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "either a prompt or messages"),
        ({"prompt": "x", "messages": []}, "either a prompt or messages"),
        ({"messages": [{"role": "user"}]}, "a role and a content"),
        ({"messages": ["hi"]}, "a role and a content"),
        ({"messages": 5}, "messages are a sequence"),
        ({"prompt": "x", "stop": 5}, "stop is a text"),
        ({"prompt": "x", "deadline": 60}, "a deadline is a timedelta"),
        ({"prompt": "x", "logit_bias": [7]}, "logit_bias maps token ids"),
        ({"prompt": "x", "tempreature": 1}, "does not take .'tempreature'."),
    ],
)
def test_what_makes_no_request_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        built(**fields)


def test_a_request_for_a_tenant_that_is_known_still_needs_a_model() -> None:
    fields: Any = {"tenant": "acme", "prompt": "x"}
    with pytest.raises(InvalidRequest, match="needs a model"):
        build_request(fields, request_id=ID, now_us=NOW_US, source="svc")


def test_a_tenant_that_can_be_no_topic_is_refused() -> None:
    assert check_fields({"tenant": "acme", "model": "chat"}) == "acme"
    for wrong in (
        {"tenant": "a.b", "model": "chat"},
        {"model": "chat"},
        {"tenant": "acme"},
        {"tenant": 5, "model": "c"},
    ):
        with pytest.raises(InvalidRequest):
            check_fields(wrong)  # type: ignore[arg-type]
