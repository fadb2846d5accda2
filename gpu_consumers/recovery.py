"""What earlier workers left of requests: reads token logs, on a thread of its own, before the engine hears of them.

Only orders that were in the log before their partition came to this worker go through here; nobody can have begun
with a fresher one.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from eventlog.errors import LogUnreachable
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader, Position
from gpu_consumers.prior_attempts import PriorAttempts
from gpu_consumers.work import Work
from schemas.errors import ContractError
from schemas.events import TokenLogEvent
from schemas.ids import partition_of
from schemas.topics import tokens_topic

# Clocks of two machines may differ by so much: the log is read from that long before the order was written.
CLOCK_SKEW_MS = 10_000
_RETRY_SECONDS = 1.0

log = logging.getLogger("headrace.worker.recovery")


class Recovery:
    """Takes work, gives it `prior`, and hands it on. Bounded by what the intake takes."""

    def __init__(self, profile: BrokerProfile, *, client_id: str, hand_on: Callable[[Work], None]) -> None:
        self._profile = profile
        self._client_id = f"{client_id}-recovery"
        self._hand_on = hand_on
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._client_id, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Never blocks; any thread."""
        self._inbox.put(work)

    def close(self, timeout_s: float = 1.0) -> None:
        self._stop.set()
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with LogReader(self._profile, client_id=self._client_id) as reader:
            while (batch := self._next_batch()) is not None:
                self._recover(reader, batch)

    def _next_batch(self) -> list[Work] | None:
        """What waits now, at least one; None when it is time to stop."""
        batch = [self._inbox.get()]
        while not self._inbox.empty():
            batch.append(self._inbox.get())
        return None if self._stop.is_set() else [work for work in batch if work is not None]

    def _recover(self, reader: LogReader, batch: list[Work]) -> None:
        wanted = [work for work in batch if work.partition.held]
        while not self._stop.is_set():
            try:
                found = read_prior_attempts(reader, wanted)
            except LogUnreachable as error:
                log.warning("token logs can't be read, trying again: %s", error)
                self._stop.wait(_RETRY_SECONDS)
                continue
            for work in wanted:
                work.prior = found[work.order.request_id]
                self._hand_on(work)
            return


def read_prior_attempts(reader: LogReader, batch: list[Work]) -> Mapping[str, PriorAttempts]:
    """What the logs hold of these requests now, by request id. Raises LogUnreachable."""
    found = {work.order.request_id: PriorAttempts() for work in batch}
    wanted = {request_id.encode(): prior for request_id, prior in found.items()}
    since_ms: dict[Position, int] = defaultdict(lambda: 1 << 62)
    for work in batch:
        position = tokens_topic(work.order.tenant), partition_of(work.order.request_id)
        since_ms[position] = min(since_ms[position], work.written_at_ms - CLOCK_SKEW_MS)
    starts = {position: reader.offset_at(*position, at_ms) for position, at_ms in since_ms.items()}
    for record in reader.read_to_end(starts):
        prior = wanted.get(record.key or b"")
        if prior is None:
            continue
        try:
            event = record.event()
        except ContractError:
            continue  # no reader of the token log counts it either
        if isinstance(event, TokenLogEvent):
            prior.apply(event)
    return found
