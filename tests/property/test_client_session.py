"""Whatever a server does to its frames, a reader gets a response's events in order, each once, or a typed error."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace_client.errors import ProtocolError
from headrace_client.response_state import Limits, Phase, ResponseState
from headrace_client.session import Session
from headrace_client.stream_events import OutputTextDelta, ResponseEvent
from tests.client_server import frames_of

LIMITS = Limits(most_setbacks=3)
GARBAGE = (
    "",
    "{",
    "[]",
    '{"type": 1}',
    '{"type": "response.completed", "response_id": "resp_0"}',
)
FAULTS = ("pass", "pass", "pass", "pass", "drop", "twice", "swap", "garbage", "cut", "old")


class Server:
    """Serves responses that are finished; `faults` says what happens to each frame on its way, one after the other."""

    def __init__(self, answers: list[tuple[str, ...]], faults: list[str]) -> None:
        self.logs = {f"resp_{number}": frames_of(words, f"resp_{number}") for number, words in enumerate(answers)}
        self.unasked = list(self.logs)
        self._faults = iter(faults)

    def frames_for(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What it sends for these messages, the responses interleaved."""
        logs = []
        for request in requests:
            if request["type"] == "response.create":
                created, *rest = self.logs[self.unasked.pop(0)]
                logs.append([{**created, "event_id": request["event_id"]}, *rest])
            else:
                logs.append(self.logs[request["response_id"]][request["starting_after"] + 1 :])
        longest = max(map(len, logs), default=0)
        return [log[place] for place in range(longest) for log in logs if place < len(log)]

    def spoilt(self, frames: list[dict[str, Any]]) -> list[str]:
        """The frames as they arrive; what a cut takes along is missing."""
        out: list[str] = []
        texts = [json.dumps(frame) for frame in frames]
        while texts:
            text = texts.pop(0)
            match next(self._faults, "pass"):
                case "pass":
                    out.append(text)
                case "twice":
                    out += [text, text]
                case "swap" if texts:
                    out += [texts.pop(0), text]
                case "garbage":
                    out += [GARBAGE[len(out) % len(GARBAGE)], text]
                case "old":
                    out += [text, *out[:1]]
                case "cut":
                    return out
                case _:  # dropped
                    continue
        return out


def conversation(server: Server, states: list[ResponseState]) -> Session:
    """Socket after socket, until nothing is to be done any more."""
    session = Session(LIMITS)
    for state in states:
        session.create(state)
    sockets = 0
    while session.has_work:
        sockets += 1
        assert sockets < 2000, "it never ends"
        session.connected()
        requests = [json.loads(frame) for frame in session.outgoing(0.0)]
        for frame in server.spoilt(server.frames_for(requests)):
            session.receive(frame)
            if session.broken is not None:
                break
        session.disconnected("cut")
        if session.hopeless is not None:
            session.fail_all(session.hopeless)
    return session


@given(
    answers=st.lists(st.lists(st.text(max_size=3), max_size=6).map(tuple), min_size=1, max_size=3),
    faults=st.lists(st.sampled_from(FAULTS), max_size=120),
)
def test_events_come_in_order_each_once_and_all_of_them_unless_an_error_says_why(
    answers: list[tuple[str, ...]], faults: list[str]
) -> None:
    server = Server(answers, faults)
    states = [ResponseState({"model": "m"}) for _ in answers]

    conversation(server, states)

    for state in states:
        assert state.phase is Phase.ENDED
        events = [event for event in state.buffer if isinstance(event, ResponseEvent)]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        if events:
            log = server.logs[events[0].response_id]
            deltas = [event.delta for event in events if isinstance(event, OutputTextDelta)]
            assert deltas == [frame["delta"] for frame in log[: len(events)] if "delta" in frame]
            assert state.error is not None or len(events) == len(log)


@given(
    words=st.lists(st.text(max_size=3), max_size=8).map(tuple),
    cuts=st.lists(st.sampled_from(("cut", "twice", "old")), max_size=60),
)
def test_lost_connections_and_repeated_frames_alone_lose_nothing(words: tuple[str, ...], cuts: list[str]) -> None:
    server = Server([words], ["pass", *cuts])
    state = ResponseState({"model": "m"})

    conversation(server, [state])

    assert state.error is None
    assert len(state.buffer) == len(server.logs["resp_0"])


@given(words=st.lists(st.text(max_size=3), min_size=1, max_size=8).map(tuple), kept=st.integers(1, 4))
def test_a_server_that_always_loses_the_same_event_ends_as_a_protocol_error(words: tuple[str, ...], kept: int) -> None:
    server = Server([words], [])
    del server.logs["resp_0"][kept]
    server.logs["resp_0"].insert(kept, {"type": "pong", "event_id": None})  # in its place
    state = ResponseState({"model": "m"})

    conversation(server, [state])

    assert isinstance(state.error, ProtocolError)
    assert len(state.buffer) == kept
