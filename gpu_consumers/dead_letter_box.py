"""Records that could not be understood, on their way to the dead letters."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from eventlog.clock import now_us
from eventlog.dead_letters import send_dead_letter
from eventlog.errors import DeliveryFailed, LogBusy
from eventlog.producer import EventProducer
from eventlog.record import Record
from gpu_consumers.partition import HeldPartition
from schemas.errors import ContractError

log = logging.getLogger("headrace.worker.intake")
Settled = Callable[[HeldPartition, int], None]


class DeadLetterBox:
    """Bounded by the partitions' marks: a record in it is an unfinished one. Owned by the intake's thread."""

    def __init__(self, producer: EventProducer, *, consumer: str, settled: Settled) -> None:
        """settled: called on the producer's thread, when the letter is acknowledged. A record whose letter can't be
        written stays unfinished, and the partition's next owner reads it again."""
        self._producer = producer
        self._consumer = consumer
        self._settled = settled
        self._unsent: deque[tuple[HeldPartition, Record, ContractError]] = deque()

    def put(self, partition: HeldPartition, record: Record, error: ContractError) -> None:
        log.warning("%s/%s at %s: %s", record.topic, record.partition, record.offset, error)
        self._unsent.append((partition, record, error))

    def send(self) -> None:
        """As many as the log takes now."""
        while self._unsent:
            partition, record, error = self._unsent[0]
            try:
                if partition.held:
                    send_dead_letter(
                        self._producer, record, error, consumer=self._consumer, now_us=now_us(),
                        on_delivery=self._on_delivery(partition, record.offset),
                    )  # fmt: skip
            except LogBusy:
                return
            self._unsent.popleft()

    def _on_delivery(self, partition: HeldPartition, offset: int) -> Callable[[DeliveryFailed | None], None]:
        def delivered(failure: DeliveryFailed | None) -> None:
            if failure is None:
                self._settled(partition, offset)
            else:
                log.error("a dead letter could not be written: %s", failure)

        return delivered
