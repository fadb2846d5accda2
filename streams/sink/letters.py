"""The letters that it falls to the sink to write, on their way.

The sink is the one group that reads every topic. Where another group owns the records (the stages, the workers), that
one writes the letter, and of dead letters themselves nobody does; all other topics are the sink's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue

from eventlog.clock import monotonic, now_us
from eventlog.dead_letters import send_dead_letter
from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused
from eventlog.producer import EventProducer
from eventlog.record import Record
from schemas.errors import ContractError
from schemas.topics import DEAD_LETTERS, REQUESTS, VALIDATED, WORK, kind_of
from streams.sink.metrics import SinkMetrics

log = logging.getLogger("headrace.sink")

_NOT_OURS = (REQUESTS, VALIDATED, WORK, DEAD_LETTERS)
Letter = tuple[Record, ContractError]


def is_the_sinks(topic: str) -> bool:
    """Nobody else writes letters for records of this topic, and it holds none itself."""
    kind = kind_of(topic)
    return kind is not None and kind not in _NOT_OURS


class SinkLetters:
    """Letters of the batch that is being filled, so bounded by it. Owned by the sink's thread."""

    def __init__(self, producer: EventProducer, metrics: SinkMetrics) -> None:
        self._producer = producer
        self._metrics = metrics
        self._numbers = 0
        self._unsent: dict[int, Letter] = {}
        self._sent: dict[int, Letter] = {}
        self._answers: SimpleQueue[tuple[int, DeliveryFailed | None]] = SimpleQueue()

    def put(self, record: Record, error: ContractError) -> None:
        """Send its letter, now or in `settle`."""
        self._metrics.dead_lettered(record.topic, error)
        self._numbers += 1
        all_sent = not self._unsent
        self._unsent[self._numbers] = (record, error)
        if all_sent:
            self._send()

    def settle(self, timeout_s: float) -> bool:
        """True when each letter is acknowledged, or refused for good; False: call it again later."""
        self._send()
        give_up_at = monotonic() + timeout_s
        while self._sent:
            try:
                number, failure = self._answers.get(timeout=max(0.0, give_up_at - monotonic()))
            except Empty:
                return False
            self._answered(number, failure)
        return not self._unsent

    def forget(self) -> None:
        """The batch is another sink's now, and so are its letters; those on their way may arrive."""
        self._unsent.clear()
        self._sent.clear()

    def _send(self) -> None:
        for number, (record, error) in list(self._unsent.items()):
            try:
                send_dead_letter(
                    self._producer, record, error, consumer="sink", now_us=now_us(), on_delivery=self._tell(number)
                )  # fmt: skip
            except LogBusy:
                return
            except RecordRefused as refused:
                self._lost(record, error, refused)
            else:
                self._sent[number] = (record, error)
            del self._unsent[number]

    def _tell(self, number: int) -> Callable[[DeliveryFailed | None], None]:
        return lambda failure: self._answers.put((number, failure))

    def _answered(self, number: int, failure: DeliveryFailed | None) -> None:
        letter = self._sent.pop(number, None)
        if letter is None or failure is None:
            return
        if isinstance(failure, RecordRefused):
            self._lost(*letter, failure)
        else:
            self._unsent[number] = letter

    def _lost(self, record: Record, error: ContractError, failure: DeliveryFailed) -> None:
        self._metrics.letter_lost(record.topic, error)
        log.error("%s can't be a dead letter, it is in headrace.events only: %s", record.place, failure)
