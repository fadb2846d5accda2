"""A response's events are a function of its log, whatever was written twice, late, or by a worker that was dead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.response_stream import DELTA, TERMINAL_TYPES, ResponseStream
from gateway.session import Cursor, Session
from schemas.events import TokenLogEvent
from tests.gateway_events import admitted, failed, finished, rejected, started, submitted, token

REQUEST = submitted()
TEXTS = st.lists(st.text(max_size=4), max_size=8)


def worker(texts: Sequence[str], attempt: int, begin: int, end: int, terminal: bool) -> list[TokenLogEvent]:
    """What one worker writes: tokens `begin` to `end` of the answer, and perhaps its end."""
    events: list[TokenLogEvent] = [started(REQUEST, attempt)]
    for index in range(begin, end):
        events.append(token(REQUEST, index, texts[index], sum(map(len, texts[:index])), attempt))
    return [*events, finished(REQUEST, len(texts), attempt=attempt)] if terminal else events


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[str], list[TokenLogEvent]]:
    """An answer, and a log of it: workers that take over from each other, mixed, with anything repeated."""
    texts = draw(TEXTS)
    streams: list[list[TokenLogEvent]] = [[admitted(REQUEST)]]
    attempts = draw(st.integers(1, 3))
    for attempt in range(1, attempts + 1):
        begin = draw(st.integers(0, len(texts)))
        end = len(texts) if attempt == attempts else draw(st.integers(begin, len(texts)))
        streams.append(worker(texts, attempt, 0 if attempt == attempts else begin, end, attempt == attempts))
    log: list[TokenLogEvent] = []
    while any(streams):
        source = draw(st.sampled_from([stream for stream in streams if stream]))
        log.append(source.pop(0))
        if draw(st.booleans()):
            log.append(draw(st.sampled_from(log)))
    return texts, log


def folded(log: Sequence[TokenLogEvent]) -> ResponseStream:
    stream = ResponseStream(REQUEST)
    for event in log:
        stream.apply(event)
    return stream


@given(logs())
def test_numbers_are_dense_and_the_text_is_the_answer(made: tuple[list[str], list[TokenLogEvent]]) -> None:
    texts, log = made
    events = list(folded(log).events_after(-1))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if event["type"] == DELTA) == "".join(texts)
    assert [event["type"] in TERMINAL_TYPES for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "".join(texts)


@given(logs())
def test_an_event_never_changes_once_it_was_there(made: tuple[list[str], list[TokenLogEvent]]) -> None:
    stream, seen = ResponseStream(REQUEST), list[str]()
    for event in made[1]:
        grew = stream.apply(event)
        fresh = [stream.frame(number) for number in range(len(seen), stream.next_sequence_number)]
        assert grew == bool(fresh[1:] if not seen else fresh)
        seen += fresh
    assert seen == [stream.frame(number) for number in range(stream.next_sequence_number)]
    assert [json.loads(frame) for frame in seen] == list(stream.events_after(-1))


@given(logs(), st.data())
def test_every_starting_after_gives_the_rest_and_nothing_else(
    made: tuple[list[str], list[TokenLogEvent]], data: st.DataObject
) -> None:
    stream = folded(made[1])
    events = list(stream.events_after(-1))
    after = data.draw(st.integers(-1, len(events) - 1))
    assert list(stream.events_after(after)) == events[after + 1 :]


@given(logs(), st.data())
def test_a_restart_anywhere_with_an_overlapping_read_changes_nothing(
    made: tuple[list[str], list[TokenLogEvent]], data: st.DataObject
) -> None:
    _, log = made
    joined = data.draw(st.integers(0, len(log)))
    overlap = data.draw(st.integers(0, joined))
    assert list(folded([*log[:joined], *log[overlap:]]).events_after(-1)) == list(folded(log).events_after(-1))


@given(st.lists(st.sampled_from("arfslx"), max_size=8))
def test_any_log_whatever_gives_dense_numbers_and_at_most_one_end(kinds: list[str]) -> None:
    make: dict[str, TokenLogEvent] = {
        "a": admitted(REQUEST), "r": rejected(REQUEST, 400, "t", "c"), "f": failed(REQUEST), "s": started(REQUEST),
        "l": finished(REQUEST, 0, "length"), "x": finished(REQUEST, 0, "cancelled"),
    }  # fmt: skip
    stream = folded([make[kind] for kind in kinds])
    types = [event["type"] for event in stream.events_after(-1)]
    assert [stream.event(number)["sequence_number"] for number in range(len(types))] == list(range(len(types)))
    assert sum(kind in TERMINAL_TYPES for kind in types) == int(stream.finished)
    assert not stream.finished or types[-1] in TERMINAL_TYPES
    assert len(set(types)) == len(types)


@dataclass
class Client:
    """What a client has of each response, over all its connections."""

    seen: dict[str, list[int]]

    def take(self, frame: str) -> None:
        event = json.loads(frame)
        if "sequence_number" in event:
            self.seen[event["response_id"]].append(event["sequence_number"])


@settings(max_examples=60)
@given(st.data())
def test_a_client_that_reconnects_at_any_time_has_everything_once(data: st.DataObject) -> None:
    requests = [submitted(number) for number in range(1, data.draw(st.integers(1, 3)) + 1)]
    streams = {stream.response_id: stream for stream in map(ResponseStream, requests)}
    coming = {key: _plain_log(stream) for key, stream in streams.items()}
    client = Client({key: [] for key in streams})
    session, cursors = _connect(streams, client)
    while any(coming.values()) or session.open_count:
        ready = [key for key, events in coming.items() if events]
        action = data.draw(st.sampled_from([*(["log"] if ready else []), "send", "reconnect"]))
        if action == "log":
            key = data.draw(st.sampled_from(ready))
            streams[key].apply(coming[key].pop(0))
            session.ready(cursors[key])
        elif action == "reconnect":
            session, cursors = _connect(streams, client)
        elif frames := session.next_frames():
            # The connection may break in the middle of them: the client has some, the session thinks none.
            arrived = len(frames) - data.draw(st.integers(0, len(frames)))
            for frame in frames[:arrived]:
                client.take(frame)
            if arrived == len(frames):
                session.sent(now_us=1)
            else:
                session, cursors = _connect(streams, client)
    for key, stream in streams.items():
        assert client.seen[key] == list(range(stream.next_sequence_number))


def _plain_log(stream: ResponseStream) -> list[TokenLogEvent]:
    request = stream.request
    return [
        admitted(request),
        started(request),
        token(request, 0, "a", 0),
        token(request, 1, "b", 1),
        finished(request, 2),
    ]


def _connect(streams: dict[str, ResponseStream], client: Client) -> tuple[Session, dict[str, Cursor]]:
    session = Session()
    return session, {key: session.open(stream, after=len(client.seen[key]) - 1) for key, stream in streams.items()}
