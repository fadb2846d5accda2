"""A worker's letters: the record is done with its letter, or when there can be none."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused
from eventlog.producer import EventProducer, OnDelivery
from eventlog.record import Record
from gpu_consumers.dead_letter_box import DeadLetterBox
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.partition import HeldPartition
from schemas.errors import UndecodableEvent

RECORD = Record("work.d.acme", 0, 7, 1, b"k", b"garbage", [])
LABELS = {"deployment": "d", "worker": "w", "reason": "undecodable"}


class Stage:
    """A box with a producer that answers as told: an exception is raised, or given to `on_delivery`."""

    def __init__(self, raises: Exception | None = None, answers: DeliveryFailed | None = None) -> None:
        self.raises, self.answers = raises, answers
        self.metrics = WorkerMetrics(deployment="d", worker="w")
        self.settled: list[int] = []
        self.sent = 0
        self.partition = HeldPartition("work.d.acme", 0)
        self.box = DeadLetterBox(
            cast(EventProducer, self), self.metrics, consumer="gpu.d", settled=lambda _, at: self.settled.append(at)
        )

    def send(self, _topic: str, _event: Any, *, on_delivery: OnDelivery, **_: Any) -> None:
        self.sent += 1
        if self.raises is not None:
            raise self.raises
        on_delivery(self.answers)

    def count(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"headrace:{name}_total", LABELS)


def test_a_record_is_done_when_its_letter_is_acknowledged() -> None:
    stage = Stage()
    stage.box.put(stage.partition, RECORD, UndecodableEvent("no header"))
    assert stage.settled == []
    stage.box.send()
    assert stage.settled == [7]
    assert (stage.count("dead_letters"), stage.count("dead_letters_lost")) == (1, None)


def test_a_busy_log_is_tried_again() -> None:
    stage = Stage(raises=LogBusy("full"))
    stage.box.put(stage.partition, RECORD, UndecodableEvent("no header"))
    stage.box.send()
    stage.raises = None
    stage.box.send()
    stage.box.send()
    assert (stage.settled, stage.sent) == ([7], 2)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_letter_that_the_log_refuses_is_counted_and_ends_its_record(at_once: bool) -> None:
    refused = RecordRefused("too large")
    stage = Stage(raises=refused) if at_once else Stage(answers=refused)
    stage.box.put(stage.partition, RECORD, UndecodableEvent("no header"))
    stage.box.send()
    assert stage.settled == [7]
    assert stage.count("dead_letters_lost") == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_a_letter_that_failed_leaves_its_record_to_the_next_owner(at_once: bool) -> None:
    failed = DeliveryFailed("it was closed")
    stage = Stage(raises=failed) if at_once else Stage(answers=failed)
    stage.box.put(stage.partition, RECORD, UndecodableEvent("no header"))
    stage.box.send()
    assert stage.settled == []
    assert stage.count("dead_letters_lost") is None
