"""Sending: done when all is acknowledged, waiting when the log is busy, failing aloud."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused
from eventlog.producer import EventProducer, OnDelivery
from eventlog.record import Record
from schemas.errors import UndecodableEvent
from streams.book import Change
from streams.decide import Output
from streams.outbox import Outbox, Pending, Unsendable
from tests.unit.streams.samples import submitted

OUTPUT = Output("t", submitted(), "k")


class FakeProducer:
    """Keeps what is sent; the test acknowledges. `busy`: how many more sends find the buffer full."""

    def __init__(self) -> None:
        self.sent: list[OnDelivery] = []
        self.values: list[bytes | None] = []
        self.busy = 0
        self.too_large = False

    def send(self, _topic: str, _event: Any, *, on_delivery: OnDelivery, **_: Any) -> None:
        if self.too_large:
            raise RecordRefused("t: message too large")
        if self.busy:
            self.busy -= 1
            raise LogBusy("full")
        self.sent.append(on_delivery)

    def send_bytes(self, _topic: str, value: bytes | None, *, on_delivery: OnDelivery, **_: Any) -> None:
        self.values.append(value)
        self.sent.append(on_delivery)

    def acknowledge(self, index: int = 0, failure: DeliveryFailed | None = None) -> None:
        self.sent.pop(index)(failure)


def outbox_of(
    producer: FakeProducer, failed: Callable[[DeliveryFailed], None] = lambda _: None, most: int = 10
) -> Outbox:
    return Outbox(cast(EventProducer, producer), max_in_flight=most, on_failure=failed)


async def settle_down() -> None:
    """Let everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_record_is_delivered_when_the_last_of_its_outputs_is_acknowledged() -> None:
    producer, delivered = FakeProducer(), asyncio.Event()
    outbox = outbox_of(producer)
    pending = Pending(delivered.set)
    await outbox.send(pending, OUTPUT)
    await outbox.send_change(pending, Change(b"k", None), topic="c", partition=0)
    producer.acknowledge(1)
    await settle_down()
    outbox.complete(pending)
    assert not delivered.is_set()

    producer.acknowledge()
    await settle_down()

    assert delivered.is_set()
    assert outbox.in_flight == 0
    assert producer.values == [None]


async def test_early_acknowledgements_do_not_deliver_a_record_that_is_still_being_sent() -> None:
    producer, delivered = FakeProducer(), asyncio.Event()
    outbox = outbox_of(producer)
    pending = Pending(delivered.set)
    await outbox.send(pending, OUTPUT)
    producer.acknowledge()
    await settle_down()
    assert not delivered.is_set()

    outbox.complete(pending)

    assert delivered.is_set()


async def test_a_record_without_outputs_is_delivered_at_once() -> None:
    delivered = asyncio.Event()

    outbox_of(FakeProducer()).complete(Pending(delivered.set))

    assert delivered.is_set()


async def test_a_busy_log_is_waited_for_and_nothing_is_sent_twice() -> None:
    producer = FakeProducer()
    outbox = outbox_of(producer)
    await outbox.send(Pending(lambda: None), OUTPUT)
    producer.busy = 1
    sending = asyncio.create_task(outbox.send(Pending(lambda: None), OUTPUT))
    await settle_down()
    assert not sending.done()

    producer.acknowledge()
    await sending

    assert len(producer.sent) == 1


async def test_room_is_there_again_when_an_output_is_acknowledged() -> None:
    producer = FakeProducer()
    outbox = outbox_of(producer, most=1)
    await outbox.send(Pending(lambda: None), OUTPUT)
    waiting = asyncio.create_task(outbox.room())
    await settle_down()
    assert not waiting.done()

    producer.acknowledge()

    await waiting


async def test_an_output_that_was_not_acknowledged_is_reported_and_its_record_is_not_done() -> None:
    producer, failures, delivered = FakeProducer(), list[DeliveryFailed](), asyncio.Event()
    outbox = outbox_of(producer, failures.append)
    pending = Pending(delivered.set)
    await outbox.send(pending, OUTPUT)
    outbox.complete(pending)

    producer.acknowledge(failure=DeliveryFailed("timed out"))
    await outbox.flush()

    assert [str(failure) for failure in failures] == ["timed out"]
    assert not delivered.is_set()


async def test_a_record_too_large_for_the_broker_is_refused_at_once() -> None:
    producer = FakeProducer()
    producer.too_large = True
    outbox = outbox_of(producer)

    with pytest.raises(Unsendable, match="too large"):
        await outbox.send(Pending(lambda: None), OUTPUT)

    assert outbox.in_flight == 0


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_dead_letter_that_the_log_refuses_ends_its_record_and_nothing_else(at_once: bool) -> None:
    producer, failures, delivered = FakeProducer(), list[DeliveryFailed](), asyncio.Event()
    producer.too_large = at_once
    refused = list[DeliveryFailed]()
    outbox = outbox_of(producer, failures.append)
    pending = Pending(delivered.set)
    record = Record("requests.acme", 0, 7, 1, b"k", b"garbage", [])
    await outbox.send_dead_letter(
        pending, record, UndecodableEvent("no header"), consumer="c", now_us=1, refused=refused.append
    )
    outbox.complete(pending)
    if not at_once:
        producer.acknowledge(failure=RecordRefused("t: message too large"))
    await settle_down()

    assert delivered.is_set()
    assert ["too large" in str(failure) for failure in refused] == [True]
    assert (failures, outbox.in_flight) == ([], 0)
