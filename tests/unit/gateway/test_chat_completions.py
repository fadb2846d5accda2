"""The fold in the shapes of the completion APIs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion as OpenAIChatCompletion
from openai.types.chat import ChatCompletionChunk

from gateway.chat_completions import DONE, ChatCompletion, TextCompletion
from gateway.response_stream import ResponseStream
from schemas.events import RequestSubmitted, TokenLogEvent, TokenLogprobs
from tests.gateway_events import admitted, failed, finished, likely, started, submitted, tokens

REQUEST = submitted()
WHOLE: list[TokenLogEvent] = [
    admitted(REQUEST),
    started(REQUEST),
    *tokens(REQUEST, ["Hel", "lo"]),
    finished(REQUEST, 2),
]


def stream_of(events: list[TokenLogEvent], request: RequestSubmitted = REQUEST) -> ResponseStream:
    stream = ResponseStream(request)
    for event in events:
        stream.apply(event)
    return stream


def frames(view: ChatCompletion) -> list[str]:
    """All that a client sees, the choices one after the other."""
    return [
        frame
        for index, stream in enumerate(view.choices)
        for number in range(stream.next_sequence_number)
        for frame in view.frames(index, number)
    ] + view.closing()


def test_chunks_open_with_the_role_carry_the_text_and_end_with_the_reason() -> None:
    *chunks, done = frames(ChatCompletion([stream_of(WHOLE)]))
    parsed = [ChatCompletionChunk.model_validate_json(chunk) for chunk in chunks]
    assert done == DONE
    assert [chunk.choices[0].delta.role for chunk in parsed] == ["assistant", None, None, None]
    assert [chunk.choices[0].delta.content for chunk in parsed] == ["", "Hel", "lo", None]
    assert [chunk.choices[0].finish_reason for chunk in parsed] == [None, None, None, "stop"]
    assert {chunk.id for chunk in parsed} == {"chatcmpl-" + REQUEST.request_id.replace("-", "")}
    assert "usage" not in json.loads(chunks[0])


def test_usage_comes_in_a_chunk_of_its_own_when_asked_for() -> None:
    *chunks, usage, done = frames(ChatCompletion([stream_of(WHOLE)], include_usage=True))
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
    answer = OpenAIChatCompletion.model_validate(ChatCompletion([stream_of(WHOLE)]).whole())
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_text_completion_has_the_legacy_shape(reason: str) -> None:
    view = TextCompletion([stream_of([*WHOLE[:-1], finished(REQUEST, 2, reason)])])
    answer = Completion.model_validate(view.whole())
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", reason)
    *chunks, done = frames(view)
    assert [json.loads(chunk)["choices"][0]["text"] for chunk in chunks[:-1]] == ["Hel", "lo"]
    assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == reason
    assert done == DONE


def test_a_failure_amid_the_answer_is_told_in_the_stream() -> None:
    events: list[TokenLogEvent] = [*WHOLE[:3], failed(REQUEST, 1)]
    *_, error, done = frames(ChatCompletion([stream_of(events)]))
    assert json.loads(error)["error"]["code"] == "engine_failed"
    assert json.loads(error)["error"]["request_id"] == REQUEST.request_id
    assert done == DONE


ASKED = submitted(top_logprobs=1)
TOLD: list[TokenLogEvent] = [
    started(ASKED),
    replace(tokens(ASKED, ["Hé"])[0], logprobs=(likely("Hé", -0.5, Ha=-0.25),)),
    replace(tokens(ASKED, ["l"], 1, 2)[0], logprobs=(likely("l", float("-inf"), l=-0.1),)),
    replace(tokens(ASKED, [""], 2, 3)[0], logprobs=(likely("", -2.0),)),
    finished(ASKED, 3),
]


def test_log_probabilities_stand_with_the_text_that_they_are_of_and_not_for_the_end() -> None:
    view = ChatCompletion([stream_of(TOLD, ASKED)])
    answer = OpenAIChatCompletion.model_validate(view.whole())
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content
    assert content is not None
    assert [(token.token, token.logprob, token.bytes) for token in content] == [
        ("Hé", -0.5, [72, 195, 169]),
        ("l", -9999.0, [108]),
    ]
    assert [[(top.token, top.logprob) for top in token.top_logprobs] for token in content] == [
        [("Ha", -0.25)],
        [("l", -0.1)],
    ]
    chunks = [ChatCompletionChunk.model_validate_json(chunk) for chunk in frames(view)[:-1]]
    told = [chunk.choices[0].logprobs for chunk in chunks]
    assert [None if one is None else one.content for one in told] == [None, content[:1], content[1:], None]


def test_a_text_completion_tells_log_probabilities_in_columns() -> None:
    view = TextCompletion([stream_of(TOLD, ASKED)])
    told = Completion.model_validate(view.whole()).choices[0].logprobs
    assert told is not None
    assert (told.tokens, told.token_logprobs, told.text_offset) == (["Hé", "l"], [-0.5, -9999.0], [0, 2])
    assert told.top_logprobs == [{"Ha": -0.25}, {"l": -0.1}]
    chunks = [json.loads(chunk)["choices"][0]["logprobs"] for chunk in frames(view)[:-1]]
    assert [chunk and chunk["text_offset"] for chunk in chunks] == [[0], [2], None]


def test_a_character_of_two_tokens_counts_in_the_columns_behind_the_second() -> None:
    pieces = tuple(TokenLogprobs(logprob=-1.0, utf8=utf8, top=()) for utf8 in (b"\xc3", b"\xa9", b"!", b"?"))
    log: list[TokenLogEvent] = [started(ASKED)]
    log.append(replace(tokens(ASKED, ["é!?"], 0, 0)[0], token_ids=(1, 2, 3, 4), logprobs=pieces))
    log.append(finished(ASKED, 4))
    told = TextCompletion([stream_of(log, ASKED)]).whole()["choices"][0]["logprobs"]
    assert told["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", "!", "?"]
    assert told["text_offset"] == [0, 0, 1, 2]


def test_an_answer_without_text_has_no_log_probabilities_but_says_that_they_were_asked_for() -> None:
    view = ChatCompletion([stream_of([started(ASKED), finished(ASKED, 0)], ASKED)])
    assert view.whole()["choices"][0]["logprobs"] == {"content": [], "refusal": None}


OTHER = submitted(2)
SECOND: list[TokenLogEvent] = [
    started(OTHER),
    *tokens(OTHER, ["Good", "bye", "!"]),
    finished(OTHER, 3, "length"),
]


def test_choices_are_one_answer_under_the_id_of_the_first_with_the_usage_of_all() -> None:
    view = ChatCompletion([stream_of(WHOLE), stream_of(SECOND, OTHER)], include_usage=True)
    answer = OpenAIChatCompletion.model_validate(view.whole())
    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices] == [
        (0, "Hello", "stop"),
        (1, "Goodbye!", "length"),
    ]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (6, 5, 11)
    *chunks, usage, done = frames(view)
    parsed = [ChatCompletionChunk.model_validate_json(chunk) for chunk in chunks]
    assert {chunk.id for chunk in parsed} == {answer.id}
    texts = ["".join(c.choices[0].delta.content or "" for c in parsed if c.choices[0].index == n) for n in (0, 1)]
    assert texts == ["Hello", "Goodbye!"]
    assert [chunk.choices[0].index for chunk in parsed if chunk.choices[0].delta.role] == [0, 1]
    assert json.loads(usage)["usage"] == json.loads(answer.usage.to_json())
    assert done == DONE


def test_there_is_no_usage_of_an_answer_that_failed() -> None:
    broken: list[TokenLogEvent] = [started(OTHER), failed(OTHER)]
    view = ChatCompletion([stream_of(WHOLE), stream_of(broken, OTHER)], include_usage=True)
    assert view.closing() == [DONE]
