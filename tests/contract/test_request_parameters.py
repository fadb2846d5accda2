"""What the official `openai` package asks for beside text: log probabilities, JSON, sampling parameters."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Any

import openai
from pydantic import BaseModel

from schemas.events import LogitBias, RequestSubmitted
from tests.contract.gateway_world import Step, World
from tests.gateway_events import admitted, finished, likely, started, token, tokens

MESSAGES: Any = [{"role": "user", "content": "one two three"}]


class Answer(BaseModel):
    explanation: str
    value: int


def told(request: RequestSubmitted) -> list[Step]:
    """ "Yes." with log probabilities, and an end that has one, too."""
    told = [replace(event, logprobs=(likely(event.text, -0.5, No=-1.0),)) for event in tokens(request, ["Yes", "."])]
    end = replace(token(request, 2, "", 4), logprobs=(likely("", -0.1),))
    return [admitted(request), started(request), *told, end, finished(request, 3)]


def test_log_probabilities_are_told_on_every_endpoint(here: World, client: openai.OpenAI) -> None:
    model = f"told-{secrets.token_hex(4)}"
    here.upstream.script_for[model] = told
    chat = client.chat.completions.create(model=model, messages=MESSAGES, logprobs=True, top_logprobs=1)
    assert chat.choices[0].logprobs is not None
    content = chat.choices[0].logprobs.content or []
    assert [(entry.token, entry.logprob, entry.top_logprobs[0].token) for entry in content] == [
        ("Yes", -0.5, "No"),
        (".", -0.5, "No"),
    ]
    chunks = client.chat.completions.create(
        model=model, messages=MESSAGES, logprobs=True, top_logprobs=1, stream=True
    )  # fmt: skip
    streamed = [chunk.choices[0].logprobs for chunk in chunks]
    assert [entry for one in streamed if one is not None for entry in one.content or []] == content
    legacy = client.completions.create(model=model, prompt="x", logprobs=1).choices[0].logprobs
    assert legacy is not None
    assert (legacy.tokens, legacy.text_offset, legacy.top_logprobs) == (["Yes", "."], [0, 3], [{"No": -1.0}] * 2)
    include: Any = ["message.output_text.logprobs"]
    response = client.responses.create(model=model, input="x", include=include, top_logprobs=1)
    part: Any = response.output[0].to_dict()["content"][0]  # type: ignore[index]
    assert [(entry["token"], entry["bytes"]) for entry in part["logprobs"]] == [("Yes", [89, 101, 115]), (".", [46])]
    with client.responses.stream(model=model, input="x", include=include, top_logprobs=1) as stream:
        deltas = [event.logprobs for event in stream if event.type == "response.output_text.delta"]
    assert [[entry.token for entry in delta] for delta in deltas] == [["Yes"], ["."]]
    assert [request.top_logprobs for request in here.upstream.requests_for(model)] == [1] * 5


def test_an_answer_is_parsed_into_a_pydantic_model(here: World, client: openai.OpenAI) -> None:
    model = f"json-{secrets.token_hex(4)}"
    text = '{"explanation": "2 + 2", "value": 4}'
    here.upstream.script_for[model] = lambda request: [
        admitted(request), started(request), *tokens(request, [text]), finished(request, 1)
    ]  # fmt: skip
    expected = Answer(explanation="2 + 2", value=4)
    chat = client.chat.completions.parse(model=model, messages=MESSAGES, response_format=Answer)
    assert chat.choices[0].message.parsed == expected
    response = client.responses.parse(model=model, input="x", text_format=Answer)
    assert response.output_parsed == expected
    assert response.text is not None
    assert getattr(response.text.format, "name", None) == "Answer"
    with client.chat.completions.stream(model=model, messages=MESSAGES, response_format=Answer) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == expected
    for request in here.upstream.requests_for(model):
        assert request.json_schema is not None
        assert json.loads(request.json_schema)["required"] == ["explanation", "value"]


def test_every_sampling_parameter_reaches_the_log(here: World, client: openai.OpenAI) -> None:
    model = f"sampled-{secrets.token_hex(4)}"
    client.chat.completions.create(
        model=model, messages=MESSAGES, presence_penalty=0.5, frequency_penalty=-0.5, logit_bias={"7": -100},
        extra_body={"min_p": 0.1, "repetition_penalty": 1.1, "top_k": -1},
    )  # fmt: skip
    (request,) = here.upstream.requests_for(model)
    assert (request.presence_penalty, request.frequency_penalty) == (0.5, -0.5)
    assert (request.min_p, request.repetition_penalty, request.top_k) == (0.1, 1.1, 0)
    assert request.logit_bias == (LogitBias(token_id=7, bias=-100.0),)
