"""One response as client events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.response_stream import ResponseStream
from schemas.events import RequestSubmitted, TokenLogEvent
from tests.gateway_events import admitted, failed, finished, likely, rejected, started, submitted, token, tokens

REQUEST = submitted(temperature=0.5, metadata={"trace": "7"}, end_user="u1")


def folded(events: Iterable[TokenLogEvent], request: RequestSubmitted = REQUEST) -> ResponseStream:
    stream = ResponseStream(request)
    for event in events:
        stream.apply(event)
    return stream


def types(stream: ResponseStream) -> list[str]:
    return [event["type"].removeprefix("response.") for event in stream.events_after(-1)]


WHOLE: list[TokenLogEvent] = [
    admitted(REQUEST),
    started(REQUEST),
    *tokens(REQUEST, ["Hel", "lo"]),
    finished(REQUEST, 2),
]
ALL_TYPES = [
    "created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
    "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
]  # fmt: skip


def test_a_whole_log_gives_openais_events_in_order() -> None:
    stream = folded(WHOLE)
    assert types(stream) == ALL_TYPES
    assert [event["sequence_number"] for event in stream.events_after(-1)] == list(range(11))
    assert {event["response_id"] for event in stream.events_after(-1)} == {stream.response_id}
    assert stream.finished


def test_openais_own_types_accept_every_event() -> None:
    adapter: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
    for event in folded(WHOLE).events_after(-1):
        assert adapter.validate_python(event).type == event["type"]


def test_the_last_event_holds_the_answer_with_its_usage_and_what_was_asked() -> None:
    response = Response.model_validate(next(folded(WHOLE).events_after(9))["response"])
    assert response.output_text == "Hello"
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (3, 2, 5)
    assert response.usage.input_tokens_details.cached_tokens == 2
    assert (response.temperature, response.metadata, response.user, response.model) == (
        0.5,
        {"trace": "7"},
        "u1",
        "chat",
    )


def test_a_worker_that_comes_before_the_admission_still_gives_queued() -> None:
    assert types(folded(WHOLE[1:])) == ALL_TYPES
    assert types(folded([WHOLE[1], WHOLE[0], *WHOLE[2:]])) == ALL_TYPES


def test_tokens_without_a_start_begin_the_answer_themselves() -> None:
    assert types(folded([token(REQUEST, 0, "x", 0)]))[1:] == [
        "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
    ]  # fmt: skip


def test_tokens_that_complete_no_text_give_no_delta() -> None:
    events: list[TokenLogEvent] = [started(REQUEST), token(REQUEST, 0, "", 0), token(REQUEST, 1, "é", 0)]
    assert types(folded(events)).count("output_text.delta") == 1


def test_a_takeover_repeats_nothing() -> None:
    first: list[TokenLogEvent] = [started(REQUEST), *tokens(REQUEST, ["Hel"])]
    second: list[TokenLogEvent] = [started(REQUEST, 2), token(REQUEST, 0, "Hel", 0, 2), token(REQUEST, 1, "lo", 3, 2)]
    stale = [token(REQUEST, 1, "XX", 3)]
    stream = folded([admitted(REQUEST), *first, *second, *stale, finished(REQUEST, 2, attempt=2)])
    assert list(stream.events_after(-1)) == list(folded(WHOLE).events_after(-1))


def test_an_answer_cut_by_the_limit_is_incomplete() -> None:
    stream = folded([*WHOLE[:-1], finished(REQUEST, 2, "length")])
    last = list(stream.events_after(-1))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_a_cancel_before_any_worker_ends_without_an_item() -> None:
    stream = folded([admitted(REQUEST), finished(REQUEST, 0, "cancelled")])
    assert types(stream) == ["created", "queued", "cancelled"]
    assert stream.snapshot()["output"] == []


def test_a_cancel_amid_the_answer_keeps_its_text() -> None:
    stream = folded([*WHOLE[:3], finished(REQUEST, 1, "cancelled")])
    assert types(stream)[-4:] == ["output_text.done", "content_part.done", "output_item.done", "cancelled"]
    assert stream.snapshot()["output"][0]["content"][0]["text"] == "Hel"
    assert stream.failure is None


def test_what_a_worker_refused_has_used_nothing() -> None:
    refused = replace(failed(REQUEST), status=422, error_type="invalid_request_error", code="adapter_unavailable")
    stream = folded([admitted(REQUEST), refused])
    assert types(stream) == ["created", "queued", "failed"]
    assert stream.snapshot()["usage"]["total_tokens"] == 0


def test_a_rejection_is_a_failed_response_with_its_reason() -> None:
    stream = folded([rejected(REQUEST, 429, "rate_limit_error", "requests_per_minute", 1500)])
    assert types(stream) == ["created", "failed"]
    assert stream.snapshot()["error"]["code"] == "requests_per_minute"
    assert stream.snapshot()["usage"] is None
    failure = stream.failure
    assert failure is not None
    assert (failure.status, failure.type, failure.param, failure.retry_after_ms) == (
        429,
        "rate_limit_error",
        "model",
        1500,
    )


def test_a_failed_generation_is_a_failed_response_with_what_was_said() -> None:
    stream = folded([*WHOLE[:3], failed(REQUEST, 1)])
    assert types(stream)[-2:] == ["output_item.done", "failed"]
    assert stream.failure is not None
    assert stream.failure.status == 500


def test_a_missed_deadline_is_a_timeout_error() -> None:
    failure = folded([*WHOLE[:3], finished(REQUEST, 1, "timeout")]).failure
    assert failure is not None
    assert (failure.status, failure.type) == (504, "timeout_error")


@pytest.mark.parametrize(("events", "status"), [(0, "queued"), (1, "queued"), (2, "in_progress"), (5, "completed")])
def test_the_snapshot_follows_the_log(events: int, status: str) -> None:
    snapshot = folded(WHOLE[:events]).snapshot()
    assert snapshot["status"] == status
    Response.model_validate(snapshot)


def test_a_delta_that_is_put_together_by_hand_is_the_event_in_json() -> None:
    stream = folded([started(REQUEST), token(REQUEST, 0, '"\\\u2028\n🌊</script>', 0)])
    for number in range(stream.next_sequence_number):
        assert json.loads(stream.frame(number)) == stream.event(number)
        assert "\n" not in stream.frame(number)


def test_text_is_counted_up_to_each_event() -> None:
    stream = folded(WHOLE)
    assert [stream.chars_before(number) for number in (0, 5, 6, 7, 11)] == [0, 0, 3, 5, 5]


def test_apply_says_whether_there_is_something_to_send() -> None:
    stream = ResponseStream(REQUEST)
    grew = [stream.apply(event) for event in (*WHOLE[:3], WHOLE[2], started(REQUEST, 2), *WHOLE[3:])]
    assert grew == [True, True, True, False, False, False, False]
    assert stream.apply(finished(REQUEST, 2, attempt=2))


ASKED = submitted(top_logprobs=1)


def told(index: int, text: str, offset: int, attempt: int = 1) -> TokenLogEvent:
    """A token whose own text is its index, whatever text it completes."""
    logprobs = (likely(str(index), -float(index), better=-0.1),)
    return replace(token(ASKED, index, text, offset, attempt), logprobs=logprobs)


TOLD: list[TokenLogEvent] = [started(ASKED), told(0, "", 0), told(1, "é", 0), told(2, "!", 1), told(3, "", 2)]


def test_log_probabilities_come_with_the_delta_that_their_tokens_complete() -> None:
    stream = folded([*TOLD, finished(ASKED, 4)], ASKED)
    adapter: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
    deltas, whole = [], []
    for event in map(adapter.validate_python, stream.events_after(-1)):
        if event.type == "response.output_text.delta":
            deltas.append([entry.token for entry in event.logprobs])
        if event.type == "response.output_text.done":
            whole = [entry.token for entry in event.logprobs]
    assert deltas == [["0", "1"], ["2"]]
    assert whole == ["0", "1", "2"], "what completes no text is told nowhere"
    content = Response.model_validate(stream.snapshot()).to_dict()["output"][0]["content"][0]  # type: ignore[index]
    assert [entry["token"] for entry in content["logprobs"]] == whole
    assert content["logprobs"][2] == {
        "token": "2", "bytes": [50], "logprob": -2.0,
        "top_logprobs": [{"token": "better", "bytes": [98, 101, 116, 116, 101, 114], "logprob": -0.1}],
    }  # fmt: skip
    assert [json.loads(stream.frame(n)) for n in range(stream.next_sequence_number)] == list(stream.events_after(-1))


def test_log_probabilities_are_the_same_after_a_takeover() -> None:
    second = [started(ASKED, 2), told(1, "é", 0, 2), told(2, "!", 1, 2), told(3, "", 2, 2)]
    stream = folded([*TOLD[:3], *second, finished(ASKED, 4, attempt=2)], ASKED)
    assert list(stream.events_after(-1)) == list(folded([*TOLD, finished(ASKED, 4)], ASKED).events_after(-1))


def test_the_size_of_what_was_sent_counts_log_probabilities() -> None:
    stream, plain = folded(TOLD, ASKED), folded(WHOLE)
    last = stream.next_sequence_number
    assert stream.bytes_before(last) - stream.chars_before(last) >= 3 * 2 * 40
    assert plain.bytes_before(plain.next_sequence_number) == plain.chars_before(plain.next_sequence_number) == 5


def test_what_was_asked_for_is_told_in_the_response() -> None:
    request = submitted(top_logprobs=2, json_schema='{"title":"sizes","type":"object"}')
    snapshot = Response.model_validate(folded([], request).snapshot())
    assert snapshot.top_logprobs == 2
    assert snapshot.text is not None
    assert snapshot.text.format is not None
    assert (snapshot.text.format.type, getattr(snapshot.text.format, "name", None)) == ("json_schema", "sizes")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_some_service_asked_for_and_json_can_not_tell_is_null(number: float) -> None:
    snapshot = folded([], submitted(temperature=number, top_p=number)).snapshot()
    assert (snapshot["temperature"], snapshot["top_p"]) == (None, None)
    Response.model_validate_json(json.dumps(snapshot, allow_nan=False))


@pytest.mark.parametrize(
    ("endpoint", "param"),
    [("responses", "text.format"), ("chat.completions", "response_format"), ("events", "json_schema")],
)
def test_a_refusal_names_the_field_as_the_client_knows_it(endpoint: str, param: str) -> None:
    request = submitted(endpoint=endpoint)
    refusal = replace(rejected(request, 400, "invalid_request_error", "invalid_json_schema"), param="json_schema")
    failure = folded([refusal], request).failure
    assert failure is not None
    assert failure.param == param
