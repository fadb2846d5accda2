"""The fold in the shapes of the completion APIs."""

from __future__ import annotations

import json

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion as OpenAIChatCompletion
from openai.types.chat import ChatCompletionChunk

from gateway.chat_completions import DONE, ChatCompletion, TextCompletion
from gateway.response_stream import ResponseStream
from schemas.events import TokenLogEvent
from tests.gateway_events import admitted, failed, finished, started, submitted, tokens

REQUEST = submitted()
WHOLE: list[TokenLogEvent] = [
    admitted(REQUEST),
    started(REQUEST),
    *tokens(REQUEST, ["Hel", "lo"]),
    finished(REQUEST, 2),
]


def stream_of(events: list[TokenLogEvent]) -> ResponseStream:
    stream = ResponseStream(REQUEST)
    for event in events:
        stream.apply(event)
    return stream


def frames(view: ChatCompletion) -> list[str]:
    return [frame for number in range(view.stream.next_sequence_number) for frame in view.frames(number)]


def test_chunks_open_with_the_role_carry_the_text_and_end_with_the_reason() -> None:
    *chunks, done = frames(ChatCompletion(stream_of(WHOLE)))
    parsed = [ChatCompletionChunk.model_validate_json(chunk) for chunk in chunks]
    assert done == DONE
    assert [chunk.choices[0].delta.role for chunk in parsed] == ["assistant", None, None, None]
    assert [chunk.choices[0].delta.content for chunk in parsed] == ["", "Hel", "lo", None]
    assert [chunk.choices[0].finish_reason for chunk in parsed] == [None, None, None, "stop"]
    assert {chunk.id for chunk in parsed} == {"chatcmpl-" + REQUEST.request_id.replace("-", "")}
    assert "usage" not in json.loads(chunks[0])


def test_usage_comes_in_a_chunk_of_its_own_when_asked_for() -> None:
    *chunks, usage, done = frames(ChatCompletion(stream_of(WHOLE), include_usage=True))
    assert done == DONE
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"] == {
        "prompt_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens": 2,
        "total_tokens": 5,
    }
    assert {json.loads(chunk)["usage"] for chunk in chunks} == {None}


def test_the_whole_answer_is_one_object() -> None:
    answer = OpenAIChatCompletion.model_validate(ChatCompletion(stream_of(WHOLE)).whole())
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_text_completion_has_the_legacy_shape(reason: str) -> None:
    view = TextCompletion(stream_of([*WHOLE[:-1], finished(REQUEST, 2, reason)]))
    answer = Completion.model_validate(view.whole())
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", reason)
    *chunks, done = frames(view)
    assert [json.loads(chunk)["choices"][0]["text"] for chunk in chunks[:-1]] == ["Hel", "lo"]
    assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == reason
    assert done == DONE


def test_a_failure_amid_the_answer_is_told_in_the_stream() -> None:
    events: list[TokenLogEvent] = [*WHOLE[:3], failed(REQUEST, 1)]
    *_, error, done = frames(ChatCompletion(stream_of(events)))
    assert json.loads(error)["error"]["code"] == "engine_failed"
    assert json.loads(error)["error"]["request_id"] == REQUEST.request_id
    assert done == DONE
