"""What Faust would commit by its own count, and what is committed instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP, Message

from eventlog.profile import BrokerProfile
from schemas.topics import Topics
from streams.app import StreamsApp
from streams.progress import Position, Progress
from streams.settings import StreamsSettings

P: Position = ("validated", 3)


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
async def app(progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StreamsApp]:
    """Never started: nothing here talks to a broker."""
    app = StreamsApp(StreamsSettings(BrokerProfile("127.0.0.1:1"), Topics(), tmp_path), "decide", progress)
    monkeypatch.setattr(app.topics, "acks_enabled_for", lambda _topic: True)
    consumer: Any = app.consumer
    yield app
    consumer._thread.thread_loop.close()


def message(offset: int) -> Message:
    return Message(*P, offset, timestamp=0.0, timestamp_type=0, headers=None, key=b"", value=b"", checksum=None)


def do(progress: Progress, offsets: range) -> None:
    for offset in offsets:
        assert progress.take(P, offset)
        progress.done(P, offset)


async def test_fausts_own_count_sticks_behind_acknowledgements_that_it_lost_and_ours_does_not(
    app: StreamsApp, progress: Progress
) -> None:
    consumer: Any = app.consumer
    do(progress, range(5000))
    # A commit of 888 to 935 was discarded in a rebalance, and the broker has 888.
    app.committed[P] = consumer._committed_offset[TP(*P)] = 888
    for offset in range(936, 5000):
        assert consumer.ack(message(offset))

    assert consumer._new_offset(TP(*P)) is None, "Faust has mended it: is ours needed?"
    assert consumer._filter_committable_offsets([]) == {TP(*P): 5000}


async def test_fausts_own_count_goes_past_records_that_it_skipped_and_ours_does_not(
    app: StreamsApp, progress: Progress
) -> None:
    consumer: Any = app.consumer
    do(progress, range(5))
    app.committed[P] = 5
    for offset in range(9, 12):  # came while a rebalance began: Faust acknowledges them and hands them to nobody
        assert consumer.ack(message(offset))

    assert consumer._new_offset(TP(*P)) == 12, "Faust has mended it: is ours needed?"
    assert consumer._filter_committable_offsets([]) == {}


async def test_nothing_is_committed_of_a_partition_until_it_is_known_how_far_others_have(
    app: StreamsApp, progress: Progress
) -> None:
    do(progress, range(10))
    assert app.committable() == {}
    app.committed[P] = 4
    assert app.committable() == {TP(*P): 10}
    app.has_committed({TP(*P): 10})
    assert app.committable() == {}

    app.has_lost({TP(*P)})
    app.has_committed({TP(*P): 10})  # one that was on its way
    assert app.committable() == {}
    app.committed[P] = 700  # it comes back, and others have gone on
    assert app.committable() == {}
    assert progress.take(P, 700)
    progress.done(P, 700)
    assert app.committable() == {TP(*P): 701}


async def test_what_faust_has_read_before_is_not_dropped_when_it_comes_again(app: StreamsApp) -> None:
    consumer: Any = app.consumer
    consumer._read_offset[TP(*P)] = 9_050  # noted behind a seek to 5000
    assert consumer._read_offset[TP(*P)] is None
