from __future__ import annotations

from typing import Any

import pytest

from headrace_client import stream_events as events
from headrace_client.answer import Answer, answer_of
from headrace_client.errors import AnswerFailed, RequestRefused
from tests.client_server import ID, WORDS, error, frames_of


def test_each_event_has_its_type_and_fields() -> None:
    parsed = [events.parse_event(frame) for frame in frames_of(("hi",))]
    assert [type(event) for event in parsed] == [
        events.ResponseCreated, events.ResponseQueued, events.ResponseInProgress, events.OutputTextDelta,
        events.OutputTextDone, events.ResponseCompleted,
    ]  # fmt: skip
    assert parsed[3] == events.OutputTextDelta(ID, 3, "hi")
    assert parsed[4] == events.OutputTextDone(ID, 4, "hi")


def test_a_delta_is_as_frozen_as_the_others() -> None:
    delta = events.parse_event(frames_of()[3])
    with pytest.raises(AttributeError):
        delta.delta = "other"  # type: ignore[union-attr]


def test_an_error_says_what_it_answers() -> None:
    assert events.parse_event(error(404, "response_not_found", "r-1", response_id=ID)) == events.ServerError(
        404, "some_error", "response_not_found", "because response_not_found", None, "r-1", ID
    )


def test_an_answer_is_made_of_the_last_event() -> None:
    end = events.parse_event(frames_of()[-1])
    assert isinstance(end, events.ResponseEnd)
    answer = answer_of(end)
    assert (answer.status, answer.text, answer.output_tokens) == ("completed", "".join(WORDS), len(WORDS))
    assert Answer(ID, "completed", "", {"usage": None}).output_tokens is None


def test_a_failed_response_is_an_error_of_its_kind() -> None:
    detail = {"type": "rate_limit_error", "code": "requests_per_minute", "message": "slow down", "param": None}
    with pytest.raises(RequestRefused) as refused:
        answer_of(events.ResponseFailed(ID, 1, {"error": detail, "output": []}))
    assert (refused.value.status, refused.value.code) == (429, "requests_per_minute")
    with pytest.raises(AnswerFailed) as broken:
        answer_of(events.ResponseFailed(ID, 9, {"error": None, "output": [{"type": "message"}]}))
    assert broken.value.status == 500


TOLD = [
    {
        "token": "h\ufffd", "bytes": [104, 195], "logprob": -0.5,
        "top_logprobs": [{"token": "H", "bytes": [72], "logprob": -1}],
    }
]  # fmt: skip
ENTRY = events.Logprob("h\ufffd", b"h\xc3", -0.5, (events.Logprob("H", b"H", -1.0),))


def test_log_probabilities_are_typed() -> None:
    delta = events.parse_event({**frames_of()[3], "logprobs": TOLD})
    assert isinstance(delta, events.OutputTextDelta)
    assert delta.logprobs == (ENTRY,)
    assert delta == events.OutputTextDelta(ID, 3, "one ", (ENTRY,))
    part = {"type": "output_text", "text": "h", "logprobs": TOLD}
    response = {"output": [{"type": "message", "content": [part]}]}
    assert Answer(ID, "completed", "h", response).logprobs == (ENTRY,)


@pytest.mark.parametrize("response", [{}, {"output": None}, {"output": [{"type": "message", "content": [{}]}]}])
def test_an_answer_without_log_probabilities_has_none(response: dict[str, Any]) -> None:
    assert Answer(ID, "completed", "h", response).logprobs == ()


@pytest.mark.parametrize(
    "told", [5, ["x"], [{}], [{**TOLD[0], "bytes": [256]}], [{**TOLD[0], "logprob": "x"}], [{**TOLD[0], "token": 5}]]
)
def test_log_probabilities_that_are_none_are_garbage(told: Any) -> None:
    with pytest.raises(events.Garbage, match="log probabilities that are none"):
        events.parse_event({**frames_of()[3], "logprobs": told})
