"""One WebSocket without its socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest, NotFound
from gateway.response_stream import ResponseStream
from gateway.session import BURST_EVENTS, FRAME_BYTES, MOST_FRAMES, Cancel, Create, Resume, Session
from schemas.events import TokenLogEvent
from tests.gateway_events import admitted, finished, started, submitted, tokens

CREATE = {"type": "response.create", "model": "chat", "input": "hi"}


def stream_of(number: int = 1, words: int = 2, *, done: bool = True) -> ResponseStream:
    request = submitted(number)
    stream = ResponseStream(request)
    events: list[TokenLogEvent] = [admitted(request), started(request), *tokens(request, ["w "] * words)]
    for event in [*events, finished(request, words)] if done else events:
        stream.apply(event)
    return stream


def sent(session: Session) -> list[dict[str, Any]]:
    events = []
    while frames := session.next_frames():
        events += [json.loads(frame) for frame in frames]
        session.sent(now_us=7)
    return events


def told(message: str | bytes) -> dict[str, Any]:
    session = Session()
    assert session.receive(message) is None
    (event,) = sent(session)
    return event


def test_messages_become_commands() -> None:
    session = Session()
    create = session.receive(json.dumps({**CREATE, "event_id": "e"}))
    assert isinstance(create, Create)
    assert (create.request.model, create.event_id) == ("chat", "e")
    assert session.receive('{"type":"response.cancel","response_id":"resp_1"}') == Cancel("resp_1", None)
    assert session.receive('{"type":"response.resume","response_id":"r","starting_after":4}') == Resume("r", 4, None)
    assert session.receive('{"type":"response.resume","response_id":"r"}') == Resume("r", -1, None)
    assert session.next_frames() == []


def test_a_ping_is_answered() -> None:
    assert told('{"type":"ping","event_id":"p1"}') == {"type": "pong", "event_id": "p1"}


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        (b"\x00", "invalid_json", None),
        ("{}", "unknown_type", "type"),
        ('{"type":"response.destroy"}', "unknown_type", "type"),
        ('{"type":["ping"]}', "unknown_type", "type"),
        ('{"type":"response.create","model":"chat"}', "invalid_type", "input"),
        ('{"type":"response.create","model":"chat","input":"x","odd":1}', "unknown_parameter", "odd"),
        ('{"type":"response.cancel"}', "missing_parameter", "response_id"),
        ('{"type":"response.resume","response_id":"r","starting_after":"x"}', "invalid_type", "starting_after"),
        ('{"type":"ping","event_id":3}', "invalid_type", "event_id"),
    ],
)
def test_a_bad_message_is_answered_with_an_error(message: str | bytes, code: str, param: str | None) -> None:
    event = told(message)
    assert (event["type"], event["status"], event["error"]["code"], event["error"]["param"]) == (
        "error",
        400,
        code,
        param,
    )


def test_an_error_names_the_message_and_the_response_that_it_is_about() -> None:
    session = Session()
    session.reply_error(NotFound("no"), "e1", "resp_1")
    (event,) = sent(session)
    assert (event["event_id"], event["response_id"], event["status"]) == ("e1", "resp_1", 404)


def test_a_fresh_response_is_sent_whole_with_the_quota_behind_its_queue() -> None:
    session = Session()
    session.open(stream_of(), event_id="e1")
    events = sent(session)
    assert [event.get("sequence_number") for event in events] == [0, 1, None, *range(2, 11)]
    assert events[0]["event_id"] == "e1"
    assert "event_id" not in events[1]
    assert events[2]["type"] == "rate_limits.updated"
    assert events[2]["rate_limits"][0] == {"name": "requests", "limit": 60, "remaining": 59, "reset_seconds": 1.0}
    assert session.open_count == 0


def test_a_resume_brings_what_follows_and_nothing_else() -> None:
    session = Session()
    session.open(stream_of(), after=6)
    assert [event["sequence_number"] for event in sent(session)] == [7, 8, 9, 10]


def test_a_resume_behind_the_last_event_brings_nothing() -> None:
    session = Session()
    assert session.open(stream_of(), after=10).finished
    assert sent(session) == []
    assert session.open_count == 0


@pytest.mark.parametrize("after", [-2, 11, 2**31 - 1])
def test_a_resume_behind_the_end_of_a_finished_response_is_refused(after: int) -> None:
    with pytest.raises(InvalidRequest, match="starting_after"):
        Session().open(stream_of(), after=after)


def test_a_client_may_be_ahead_of_what_this_gateway_has_read() -> None:
    session, stream = Session(), stream_of(done=False)
    cursor = session.open(stream, after=7)
    assert sent(session) == []
    stream.apply(finished(stream.request, 2))
    session.ready(cursor)
    assert [event["sequence_number"] for event in sent(session)] == [8, 9, 10]


def test_a_long_answer_does_not_hold_up_a_short_one() -> None:
    session = Session()
    session.open(stream_of(1, words=200))
    session.open(stream_of(2, words=1))
    order = [event["response_id"] for event in sent(session) if "sequence_number" in event]
    assert order.index(stream_of(2).response_id) <= 2 * BURST_EVENTS
    assert len(order) == 200 + 9 + 1 + 9


def test_what_was_sent_of_a_response_is_told_at_its_end() -> None:
    session = Session()
    cursor = session.open(stream_of(), after=3)
    assert len(session.next_frames()) == 7
    assert cursor.events == 0
    assert session.sent(now_us=9) == [cursor]
    assert (cursor.events, cursor.first_delta_at_us, cursor.resumed_after) == (7, 9, 3)


def test_being_behind_counts_what_came_since_and_not_the_history() -> None:
    session, stream = Session(), stream_of(done=False)
    cursor = session.open(stream)
    assert session.behind() == (0, 0)
    for event in tokens(stream.request, ["abc", "de"], index=2, offset=4):
        stream.apply(event)
    session.ready(cursor)
    assert session.behind() == (2, 2 * FRAME_BYTES + 5)
    sent(session)
    assert session.behind() == (0, 0)


def test_replies_that_nobody_takes_count_as_behind() -> None:
    session = Session()
    for _ in range(3):
        session.receive("{")
    events, size = session.behind()
    assert (events, size > 3 * 50) == (3, True)


def test_the_resume_cursor_says_where_the_oldest_open_response_goes_on() -> None:
    session = Session()
    assert session.resume_cursor() == ""
    session.open(stream_of(1, words=100_000))
    session.open(stream_of(2))
    for _ in range(99_000 // MOST_FRAMES):
        session.next_frames()
        session.sent(now_us=1)
    frames = session.next_frames()
    reason = session.resume_cursor()
    assert json.loads(reason)["response_id"] == stream_of(1).response_id
    assert json.loads(reason)["unfinished"] == 1
    assert json.loads(frames[0])["sequence_number"] == json.loads(reason)["starting_after"] + 1
    assert len(reason.encode()) <= 123
