"""Records that could not be understood, on their way to the dead letters."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from eventlog.clock import now_us
from eventlog.dead_letters import send_dead_letter
from eventlog.errors import DeliveryFailed, LogBusy, RecordRefused
from eventlog.producer import EventProducer
from eventlog.record import Record
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.partition import HeldPartition
from schemas.errors import ContractError

log = logging.getLogger("headrace.worker.intake")
Settled = Callable[[HeldPartition, int], None]


class DeadLetterBox:
    """Bounded by the partitions' marks: a record in it is an unfinished one. Owned by the intake's thread."""

    def __init__(
        self, producer: EventProducer, metrics: WorkerMetrics, *, consumer: str, settled: Settled
    ) -> None:  # fmt: skip
        """settled: called, on the producer's thread or the intake's, when the letter is acknowledged or the log refuses
        it for good. A record whose letter failed otherwise stays unfinished, and the partition's next owner reads it
        again."""
        self._producer = producer
        self._metrics = metrics
        self._consumer = consumer
        self._settled = settled
        self._unsent: deque[tuple[HeldPartition, Record, ContractError]] = deque()

    def put(self, partition: HeldPartition, record: Record, error: ContractError) -> None:
        self._metrics.dead_lettered(error.code)
        log.warning("%s/%s at %s: %s", record.topic, record.partition, record.offset, error)
        self._unsent.append((partition, record, error))

    def send(self) -> None:
        """As many as the log takes now."""
        while self._unsent:
            partition, record, error = self._unsent[0]
            if partition.held:
                delivered = self._on_delivery(partition, record, error)
                try:
                    send_dead_letter(
                        self._producer, record, error, consumer=self._consumer, now_us=now_us(), on_delivery=delivered
                    )  # fmt: skip
                except LogBusy:
                    return
                except DeliveryFailed as failure:
                    delivered(failure)
            self._unsent.popleft()

    def _on_delivery(
        self, partition: HeldPartition, record: Record, error: ContractError
    ) -> Callable[[DeliveryFailed | None], None]:
        def delivered(failure: DeliveryFailed | None) -> None:
            if failure is not None:
                log.error("the dead letter of %s could not be written: %s", record.place, failure)
            if isinstance(failure, RecordRefused):
                self._metrics.dead_letter_lost(error.code)
            if failure is None or isinstance(failure, RecordRefused):
                self._settled(partition, record.offset)

        return delivered
