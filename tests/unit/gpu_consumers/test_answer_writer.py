"""The writer over a producer that is as slow, as full or as broken as the test wants it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import cast

import pytest

from eventlog.errors import DeliveryFailed, LogBusy
from eventlog.producer import EventProducer, OnDelivery
from gpu_consumers.answer_writer import AnswerWriter, WriterStopped
from gpu_consumers.generation import MAX_LOGPROBS, Generation
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.plan import Logprobs
from schemas.events import Event, GenerationFinished, TokensGenerated
from schemas.ids import new_request_id
from tests.timing import within
from tests.unit.gpu_consumers.test_generation import MODEL
from tests.unit.gpu_consumers.test_work import GOOD


class Sent:
    """What was sent to where, and not acknowledged yet."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int | None, str, Event]] = []
        self.traces: set[bytes | None] = set()
        self.waiting: deque[OnDelivery] = deque()
        self.room = 1000
        self.refused = threading.Event()

    def send(
        self,
        topic: str,
        event: Event,
        *,
        key: str,
        partition: int | None = None,
        on_delivery: OnDelivery,
        traceparent: bytes | None,
    ) -> None:
        if not self.room:
            self.refused.set()
            raise LogBusy("full")
        self.room -= 1
        self.records.append((topic, partition, key, event))
        self.traces.add(traceparent)
        self.waiting.append(on_delivery)

    def acknowledge(self, count: int, failure: DeliveryFailed | None = None) -> None:
        for _ in range(count):
            self.waiting.popleft()(failure)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for _, _, _, event in self.records]


class Calls:
    """Counts what the writer tells."""

    def __init__(self) -> None:
        self.done = 0
        self.failures: list[DeliveryFailed] = []

    def is_done(self) -> None:
        self.done += 1

    def is_lost(self, failure: DeliveryFailed) -> None:
        self.failures.append(failure)


def make(sent: Sent, *, stop: threading.Event | None = None, max_unacknowledged: int = 100) -> AnswerWriter:
    return AnswerWriter(
        cast(EventProducer, sent),
        WorkerMetrics(deployment="d", worker="w"),
        stop=stop or threading.Event(),
        max_unacknowledged=max_unacknowledged,
    )


def generation(text: str) -> Generation:
    made = Generation(GOOD, MODEL, worker="w", pulled_at_us=1)
    add(made, text)
    return made


def add(made: Generation, text: str) -> None:
    for token in text.encode():
        made.add_token(token, 2)


def tokens_of(event: Event) -> str:
    assert isinstance(event, TokensGenerated)
    return bytes(event.token_ids).decode()


def test_an_answer_goes_to_its_partition_of_the_log_and_its_end_to_quota_too() -> None:
    sent, calls = Sent(), Calls()
    writer, made = make(sent), generation("ab")
    writer.started(made, 1, calls.is_lost)
    assert writer.tokens(made, calls.is_lost)
    assert writer.tokens(made, calls.is_lost), "nothing is left to write"
    add(made, "c")
    writer.end(made, made.finished("cancelled", 5), calls.is_done, calls.is_lost)
    log = ("tokens.t", 3, GOOD.request_id)
    assert [record[:3] for record in sent.records] == [log, log, log, log, ("validated", None, "t")]
    assert sent.kinds() == [
        "GenerationStarted", "TokensGenerated", "TokensGenerated", "GenerationFinished", "GenerationFinished",
    ]  # fmt: skip
    assert [tokens_of(sent.records[n][3]) for n in (1, 2)] == ["ab", "c"]


def test_work_is_done_when_both_of_its_last_records_are_acknowledged() -> None:
    sent, calls = Sent(), Calls()
    writer, made = make(sent), generation("ab")
    writer.end(made, made.finished("length", 5), calls.is_done, calls.is_lost)
    sent.acknowledge(2)
    assert calls.done == 0
    sent.acknowledge(1)
    assert calls.done == 1
    assert writer.unacknowledged == 0


def test_tokens_of_several_steps_go_together_while_the_log_is_behind() -> None:
    sent, calls = Sent(), Calls()
    writer, made = make(sent, max_unacknowledged=1), generation("a")
    assert writer.tokens(made, calls.is_lost)
    add(made, "b")
    assert writer.tokens(made, calls.is_lost)
    add(made, "c")
    assert writer.is_behind
    assert not writer.tokens(made, calls.is_lost)
    add(made, "d")
    sent.acknowledge(1)
    assert writer.tokens(made, calls.is_lost)
    assert [tokens_of(record[3]) for record in sent.records] == ["a", "b", "cd"]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_what_is_more_than_an_event_holds_goes_into_several(at_the_end: bool) -> None:
    sent, calls = Sent(), Calls()
    order = replace(GOOD, max_output_tokens=10_000)
    writer, made = make(sent), Generation(order, MODEL, worker="w", pulled_at_us=1)
    text = "ab" * MAX_LOGPROBS
    for token in text.encode():
        made.add_token(token, 2, Logprobs(-1.0))
    if at_the_end:
        writer.end(made, made.finished("cancelled", 5), calls.is_done, calls.is_lost)
    else:
        assert writer.tokens(made, calls.is_lost)
    pieces = [tokens_of(record[3]) for record in sent.records if isinstance(record[3], TokensGenerated)]
    assert (len(pieces), "".join(pieces)) == (2, text)


def test_a_full_buffer_keeps_tokens_in_hand() -> None:
    sent, calls = Sent(), Calls()
    writer, made = make(sent), generation("a")
    sent.room = 0
    assert not writer.tokens(made, calls.is_lost)
    sent.room = 1
    add(made, "b")
    assert writer.tokens(made, calls.is_lost)
    assert tokens_of(sent.records[0][3]) == "ab"


def test_an_end_waits_for_room() -> None:
    sent, calls = Sent(), Calls()
    writer, made = make(sent), generation("a")
    sent.room = 1
    thread = threading.Thread(
        target=writer.end, args=(made, made.finished("length", 5), calls.is_done, calls.is_lost)
    )  # fmt: skip
    thread.start()
    assert sent.refused.wait(within(10))
    sent.room = 2
    thread.join(within(10))
    assert sent.kinds() == ["TokensGenerated", "GenerationFinished", "GenerationFinished"]


def test_a_stop_ends_the_wait_for_room() -> None:
    sent, stop, calls = Sent(), threading.Event(), Calls()
    writer, made = make(sent, stop=stop), generation("a")
    sent.room = 0
    stop.set()
    with pytest.raises(WriterStopped):
        writer.started(made, 1, calls.is_lost)
    assert sent.records == []


def test_a_record_that_did_not_arrive_is_told_and_the_work_is_never_done() -> None:
    sent, calls = Sent(), Calls()
    writer, made = make(sent), generation("a")
    writer.end(made, made.finished("length", 5), calls.is_done, calls.is_lost)
    sent.acknowledge(2)
    failure = DeliveryFailed("no such topic")
    sent.acknowledge(1, failure)
    assert (calls.done, calls.failures) == (0, [failure])


def test_settling_again_writes_to_quota_alone() -> None:
    sent, calls = Sent(), Calls()
    terminal = generation("a").finished("length", 5)
    make(sent).settle_again(terminal, calls.is_done, calls.is_lost)
    sent.acknowledge(1)
    assert sent.records == [("validated", None, "t", terminal)]
    assert calls.done == 1
    assert isinstance(terminal, GenerationFinished)


def test_the_partition_is_the_one_in_the_request_id() -> None:
    sent, calls = Sent(), Calls()
    for partition in (0, 2):
        made = Generation(
            GOOD.__class__(**{**GOOD.__dict__, "request_id": new_request_id(now_ms=1, partition=partition, entropy=1)}),
            MODEL,
            worker="w",
            pulled_at_us=1,
        )
        make(sent).started(made, 1, calls.is_lost)
    assert [record[1] for record in sent.records] == [0, 2]


def test_all_that_is_written_about_a_request_belongs_to_the_trace_of_its_order() -> None:
    sent, calls = Sent(), Calls()
    made = Generation(GOOD, MODEL, worker="w", pulled_at_us=1, traceparent=b"00-aa-bb-01")
    writer = make(sent)
    writer.started(made, 1, calls.is_lost)
    add(made, "ab")
    writer.tokens(made, calls.is_lost)
    writer.end(made, made.finished("length", 5), calls.is_done, calls.is_lost)
    assert len(sent.records) == 4
    assert sent.traces == {b"00-aa-bb-01"}
