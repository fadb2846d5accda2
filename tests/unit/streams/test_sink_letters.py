"""Letters of the sink: which are its own, when a batch may go on, and what happens to one that can't be written."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused
from eventlog.producer import EventProducer, OnDelivery
from eventlog.record import Record
from schemas.errors import ContractError, UndecodableEvent
from schemas.topics import TOPIC_KINDS
from streams.sink.letters import SinkLetters, is_the_sinks
from streams.sink.metrics import SinkMetrics

RECORD = Record("tokens.acme", 0, 7, 1, b"k", b"garbage", [])
ERROR = UndecodableEvent("no header")
LABELS = {"topic": "tokens", "reason": "undecodable"}


class FakeProducer:
    """answers: for each send in turn; an exception that is raised, or what `on_delivery` hears; None: nothing yet."""

    def __init__(self, *answers: Exception | str | None) -> None:
        self._answers = list(answers)
        self.sent = 0

    def send(self, _topic: str, _event: Any, *, on_delivery: OnDelivery, **_: Any) -> None:
        self.sent += 1
        answer = self._answers.pop(0)
        if isinstance(answer, LogBusy):
            raise answer
        if answer == "acknowledged":
            on_delivery(None)
        elif isinstance(answer, DeliveryFailed):
            on_delivery(answer)


def letters_of(*answers: Exception | str | None) -> tuple[SinkLetters, FakeProducer, SinkMetrics]:
    producer, metrics = FakeProducer(*answers), SinkMetrics()
    return SinkLetters(cast(EventProducer, producer), metrics), producer, metrics


def count(metrics: SinkMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"headrace_sink_{name}_total", LABELS)


def test_every_topic_has_one_writer_of_letters_and_letters_have_none() -> None:
    others = {"requests": "validate", "validated": "decide", "work": "the workers", "dead-letters": "nobody"}
    for kind in TOPIC_KINDS:
        topic = ".".join((kind.name, *kind.per))
        assert is_the_sinks(topic) == (kind.name not in others), topic
    assert not is_the_sinks("a-strangers-topic")


def test_a_batch_without_letters_goes_on_at_once() -> None:
    letters, _, _ = letters_of()
    assert letters.settle(0)


def test_a_batch_goes_on_when_its_letters_are_acknowledged() -> None:
    letters, _, metrics = letters_of("acknowledged", "acknowledged")
    letters.put(RECORD, ERROR)
    letters.put(RECORD, ERROR)
    assert letters.settle(0)
    assert count(metrics, "dead_letters") == 2
    assert count(metrics, "dead_letters_lost") is None


def test_a_batch_waits_for_a_letter_that_is_on_its_way() -> None:
    letters, producer, _ = letters_of(None)
    letters.put(RECORD, ERROR)
    assert not letters.settle(0)
    assert producer.sent == 1, "it is not sent again while it is on its way"


@pytest.mark.parametrize("failure", [LogBusy("full"), DeliveryFailed("timed out")])
def test_a_letter_that_failed_is_sent_again(failure: Exception) -> None:
    letters, producer, metrics = letters_of(failure, "acknowledged")
    letters.put(RECORD, ERROR)
    while not letters.settle(0):
        assert producer.sent == 1
    assert producer.sent == 2
    assert count(metrics, "dead_letters") == 1


def test_a_letter_that_the_log_refuses_is_counted_and_holds_up_nothing() -> None:
    letters, _, metrics = letters_of(RecordRefused("too large"))
    letters.put(RECORD, ERROR)
    assert letters.settle(0)
    assert count(metrics, "dead_letters_lost") == 1


def test_a_letter_that_can_not_even_be_sent_is_counted_likewise() -> None:
    letters, producer, metrics = letters_of()
    letters.put(Record("tokens.acme", 0, 7, 1, b"k", b"garbage", [(str(n), b"") for n in range(70_000)]), ERROR)
    assert letters.settle(0)
    assert producer.sent == 0
    assert count(metrics, "dead_letters_lost") == 1


def test_letters_of_a_batch_that_was_taken_away_are_forgotten() -> None:
    letters, _, _ = letters_of(None, LogBusy("full"))
    letters.put(RECORD, ERROR)
    letters.put(RECORD, ERROR)
    letters.forget()
    assert letters.settle(0)


def test_unreadable_records_are_counted_by_the_kind_of_their_topic() -> None:
    metrics = SinkMetrics()
    metrics.unreadable("tokens.acme", ERROR)
    metrics.unreadable("tokens.bolt", ERROR)
    metrics.unreadable("a-strangers-topic", ContractError("?"))
    assert count(metrics, "unreadable") == 2
    strangers = {"topic": "unknown", "reason": "contract"}
    assert metrics.registry.get_sample_value("headrace_sink_unreadable_total", strangers) == 1
