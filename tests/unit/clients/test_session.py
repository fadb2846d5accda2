from __future__ import annotations

import json
from typing import Any

import pytest

from headrace_client.errors import (
    CreateUncertain,
    GatewayUnreachable,
    HeadraceError,
    InvalidRequest,
    ProtocolError,
    RequestRefused,
)
from headrace_client.response_state import Limits, Phase, ResponseState
from headrace_client.session import Session
from headrace_client.stream_events import OutputTextDelta, RateLimitsUpdated, ResponseEvent
from tests.client_server import ID, WORDS, error, frames_of

LIMITS = Limits(buffer_events=8, buffer_chars=10_000, most_setbacks=2, answer_s=30.0)


def connected_session() -> Session:
    session = Session(LIMITS)
    session.connected()
    return session


def sent(session: Session, now: float = 0.0) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in session.outgoing(now)]


def feed(session: Session, *frames: dict[str, Any]) -> list[ResponseState | None]:
    return [session.receive(json.dumps(frame)) for frame in frames]


def begun(session: Session, *, again: bool = False) -> tuple[ResponseState, list[dict[str, Any]]]:
    """A response that is acknowledged, and the frames that are still to come."""
    state = ResponseState({"model": "m"}, again=again)
    session.create(state)
    (create,) = sent(session)
    created, *rest = frames_of()
    feed(session, {**created, "event_id": create["event_id"]})
    return state, rest


def numbers(state: ResponseState) -> list[int]:
    return [event.sequence_number for event in state.take() if isinstance(event, ResponseEvent)]


def test_a_response_comes_to_its_reader_typed_and_whole() -> None:
    session = connected_session()
    state, rest = begun(session)
    feed(session, *rest)

    events = state.take()

    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == list(WORDS)
    assert (state.response_id, state.phase, session.has_work) == (ID, Phase.ENDED, False)


def test_a_create_waits_for_a_socket() -> None:
    session = Session(LIMITS)
    session.create(ResponseState({"model": "m", "input": "hi"}))
    assert not session.has_outgoing

    session.connected()

    assert sent(session) == [{"type": "response.create", "model": "m", "input": "hi", "event_id": "create-1"}]
    assert sent(session) == []


def test_a_new_socket_is_asked_for_what_was_not_seen() -> None:
    session = connected_session()
    state, rest = begun(session)
    feed(session, *rest[:3])

    session.disconnected("lost")
    session.connected()

    (resume,) = sent(session)
    assert (resume["type"], resume["response_id"], resume["starting_after"]) == ("response.resume", ID, 3)
    feed(session, *rest[3:])
    assert numbers(state) == list(range(len(rest) + 1))


def test_what_comes_twice_is_dropped() -> None:
    session = connected_session()
    state, rest = begun(session)

    feed(session, rest[0], rest[0], frames_of()[0], rest[1])

    assert numbers(state) == [0, 1, 2]
    assert session.broken is None


def test_a_gap_gives_the_socket_up_and_nothing_behind_it_counts() -> None:
    session = connected_session()
    state, rest = begun(session)

    feed(session, rest[0], rest[2], rest[1])

    assert session.broken == f"{ID} went on with event 3 behind 1"
    assert numbers(state) == [0, 1]


def test_gaps_without_end_are_a_protocol_error() -> None:
    session = connected_session()
    state, rest = begun(session)
    for _ in range(LIMITS.most_setbacks):
        feed(session, rest[3])
        session.disconnected("a gap")
        session.connected()

    assert feed(session, rest[3]) == [state]

    assert isinstance(state.error, ProtocolError)
    assert (state.phase, session.has_work) == (Phase.ENDED, False)


def test_something_new_between_gaps_is_progress() -> None:
    session = connected_session()
    state, rest = begun(session)
    for number in range(len(rest) - 1):
        feed(session, rest[number], *rest[number + 2 : number + 3])
        session.disconnected("a gap")
        session.connected()
    feed(session, rest[-1])

    assert numbers(state) == list(range(len(rest) + 1))


@pytest.mark.parametrize(
    "frame",
    [
        "", "no JSON", "[]", "null", '"text"', "{}", '{"type": 7}', b"\xff\xfe", "[" * 100_000,
        '{"type": "response.output_text.delta", "response_id": "resp_1", "delta": "no number"}',
        '{"type": "response.output_text.delta", "response_id": "resp_1", "sequence_number": true, "delta": "x"}',
        '{"type": "response.output_text.delta", "response_id": "resp_1", "sequence_number": 1, "delta": null}',
        '{"type": "response.completed", "response_id": "resp_1", "sequence_number": 1}',
        '{"type": "response.queued", "response_id": 1, "sequence_number": 1, "response": {}}',
        '{"type": "rate_limits.updated", "response_id": "resp_1", "rate_limits": [{"name": "requests"}]}',
        '{"type": "error", "error": "bad"}',
        '{"type": "pong", "event_id": 7}',
    ],
)  # fmt: skip
def test_garbage_gives_the_socket_up_and_costs_no_response(frame: str | bytes) -> None:
    session = connected_session()
    state, rest = begun(session)

    assert session.receive(frame) is None
    assert session.broken is not None

    session.disconnected("garbage")
    session.connected()
    feed(session, *rest)
    assert numbers(state) == list(range(len(rest) + 1))


def test_garbage_without_end_is_hopeless() -> None:
    session = connected_session()
    state = ResponseState({"model": "m"}, again=True)
    session.create(state)
    for _ in range(LIMITS.most_setbacks):
        sent(session)
        session.receive("<html>")
        assert session.hopeless is None
        session.disconnected("garbage")
        session.connected()

    session.receive("<html>")

    assert isinstance(session.hopeless, ProtocolError)


def test_types_that_nobody_knows_are_passed_over_and_counted() -> None:
    session = connected_session()
    state, rest = begun(session)
    strange = {"type": "response.reasoning.delta", "response_id": ID, "sequence_number": 1, "of": "the future"}

    feed(
        session,
        {"type": "weather.updated"},
        strange,
        *({**f, "sequence_number": f["sequence_number"] + 1} for f in rest),
    )

    assert numbers(state) == [0, *range(2, len(rest) + 2)]
    assert session.broken is None


def test_a_create_that_the_socket_took_along_is_uncertain() -> None:
    session = connected_session()
    state = ResponseState({"model": "m"})
    session.create(state)
    sent(session)

    session.disconnected("lost")

    assert isinstance(state.error, CreateUncertain)
    assert not session.has_work


def test_a_create_that_no_socket_has_had_is_sent_on_the_next_one() -> None:
    session = connected_session()
    state = ResponseState({"model": "m"})
    session.create(state)

    session.disconnected("lost")
    session.connected()

    assert [frame["type"] for frame in sent(session)] == ["response.create"]
    assert state.error is None


def test_a_create_that_may_run_twice_is_sent_again() -> None:
    session = connected_session()
    state = ResponseState({"model": "m"}, again=True)
    session.create(state)
    sent(session)

    session.disconnected("lost")
    session.connected()

    assert [frame["type"] for frame in sent(session)] == ["response.create"]
    assert state.phase is Phase.UNANSWERED


def test_a_create_without_an_answer_is_overdue() -> None:
    session = connected_session()
    session.create(ResponseState({"model": "m"}))
    sent(session, now=100.0)

    assert not session.overdue(130.0)
    assert session.overdue(130.1)


def test_a_refused_create_ends_with_what_the_server_says() -> None:
    session = connected_session()
    state = ResponseState({"model": "m"})
    session.create(state)
    (create,) = sent(session)

    assert feed(session, error(400, "invalid_value", create["event_id"])) == [state]

    assert isinstance(state.error, RequestRefused)
    assert (state.error.status, state.error.code, state.error.message) == (
        400,
        "invalid_value",
        "because invalid_value",
    )


def resumed(session: Session) -> tuple[ResponseState, str]:
    state = ResponseState(None, response_id=ID, seen=2, phase=Phase.OPEN)
    session.resume(state)
    (resume,) = sent(session)
    return state, resume["event_id"]


def test_a_response_that_is_not_there_any_more_ends_so() -> None:
    session = connected_session()
    state, event_id = resumed(session)

    feed(session, error(404, "response_not_found", event_id, response_id=ID))

    assert isinstance(state.error, RequestRefused)
    assert state.error.status == 404


def test_a_resume_that_can_not_be_served_now_is_asked_for_again_within_bounds() -> None:
    session = connected_session()
    state, event_id = resumed(session)
    for _ in range(LIMITS.most_setbacks):
        feed(session, error(503, "log_unavailable", event_id, response_id=ID))
        assert session.broken is not None
        session.disconnected("unavailable")
        session.connected()
        event_id = sent(session)[0]["event_id"]
    feed(session, error(503, "log_unavailable", event_id, response_id=ID))

    assert isinstance(state.error, RequestRefused)


def test_a_cancel_is_not_lost_with_its_socket() -> None:
    session = connected_session()
    state, _ = begun(session)
    session.cancel(state)
    session.disconnected("lost")
    session.connected()

    assert [frame["type"] for frame in sent(session)] == ["response.resume", "response.cancel"]


def test_a_cancel_before_the_acknowledgement_follows_it() -> None:
    session = connected_session()
    state = ResponseState({"model": "m"})
    session.create(state)
    (create,) = sent(session)
    session.cancel(state)
    assert sent(session) == []

    feed(session, {**frames_of()[0], "event_id": create["event_id"]})

    assert [frame["type"] for frame in sent(session)] == ["response.cancel"]


def test_a_cancel_that_the_server_could_not_take_is_asked_for_again() -> None:
    session = connected_session()
    state, _ = begun(session)
    session.cancel(state)
    (cancel,) = sent(session)
    feed(session, error(503, "log_unavailable", cancel["event_id"], response_id=ID))
    session.cancel_again()
    (again,) = sent(session)
    assert again["type"] == "response.cancel"

    feed(session, error(404, "response_not_found", again["event_id"], response_id=ID))
    session.cancel_again()

    assert sent(session) == []
    assert state.error is None


def test_an_error_about_a_response_that_has_ended_or_was_abandoned_says_nothing() -> None:
    session = connected_session()
    ended, rest = begun(session)
    session.cancel(ended)
    (cancel,) = sent(session)
    feed(session, *rest, error(503, "log_unavailable", cancel["event_id"], response_id=ID))
    session.cancel_again()

    assert sent(session) == []
    assert (ended.phase, ended.error, session.broken) == (Phase.ENDED, None, None)


def test_a_response_that_is_open_can_not_be_resumed_beside_itself() -> None:
    session = connected_session()
    state, rest = begun(session)

    with pytest.raises(InvalidRequest, match="open in this stream already"):
        session.resume(ResponseState(None, response_id=ID, phase=Phase.OPEN))

    feed(session, *rest)
    assert numbers(state) == list(range(len(rest) + 1))


def test_what_is_abandoned_is_cancelled_as_soon_as_it_can_be() -> None:
    error = HeadraceError("nobody reads it")
    session = connected_session()
    live, _ = begun(session)
    session.abandon(live, error)
    assert ([frame["type"] for frame in sent(session)], session.has_work) == (["response.cancel"], False)

    unanswered = ResponseState({"model": "m"})
    session.create(unanswered)
    (create,) = sent(session)
    session.abandon(unanswered, error)
    feed(session, {**frames_of()[0], "event_id": create["event_id"]})
    assert ([frame["type"] for frame in sent(session)], session.has_work) == (["response.cancel"], False)

    offline, _ = begun(session)
    session.disconnected("lost")
    session.abandon(offline, error)
    assert session.has_work
    session.connected()
    assert ([frame["type"] for frame in sent(session)], session.has_work) == (["response.cancel"], False)
    assert live.error is unanswered.error is offline.error is error


def test_a_buffer_is_full_by_events_or_by_size() -> None:
    session = connected_session()
    state, rest = begun(session)
    feed(session, *rest[:6])
    assert not session.full(state)
    feed(session, rest[6])
    assert session.full(state)
    state.take()
    assert not session.full(state)

    other = connected_session()
    big, (first, *_) = begun(other)
    feed(other, {**first, "response": {"padding": "x" * 10_000}})
    assert other.full(big)


def test_rate_limits_reach_the_reader_of_their_response() -> None:
    session = connected_session()
    state, _ = begun(session)
    state.take()
    row = {"name": "tokens", "limit": 9, "remaining": 8, "reset_seconds": 0.5}

    feed(session, {"type": "rate_limits.updated", "response_id": ID, "rate_limits": [row]})

    (event,) = state.take()
    assert isinstance(event, RateLimitsUpdated)
    assert vars(event.rate_limits[0]) == row


def test_what_was_dropped_is_ignored() -> None:
    session = connected_session()
    state, rest = begun(session)
    session.drop(state)

    assert feed(session, *rest) == [None] * len(rest)
    assert (session.has_work, session.broken) == (False, None)


def test_when_there_will_be_no_socket_every_reader_is_woken_with_the_reason() -> None:
    session = connected_session()
    state, _ = begun(session)
    woken: list[HeadraceError | None] = []
    state.wake = lambda: woken.append(state.error)
    error = GatewayUnreachable("gone")

    session.fail_all(error)

    assert woken == [error]
    assert not session.has_work
