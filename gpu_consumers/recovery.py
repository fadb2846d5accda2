"""Gives orders what earlier workers left of them, on a thread of its own, before the engine hears of them.

Only orders that were in the log before their partition came to this worker go through here; nobody can have begun
with a fresher one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from confluent_kafka import KafkaException

from eventlog.errors import LogUnreachable
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.record import OnUnreadable
from gpu_consumers.attempt_log import AttemptLog
from gpu_consumers.work import Work

_RETRY_SECONDS = 1.0
_FORGET_SECONDS = 30.0

log = logging.getLogger("headrace.worker.recovery")


class Recovery:
    """Takes work, gives it `prior`, and hands it on. Bounded by what the intake takes."""

    def __init__(
        self, profile: BrokerProfile, *, client_id: str, hand_on: Callable[[Work], None], unreadable: OnUnreadable
    ) -> None:
        self._profile = profile
        self._client_id = f"{client_id}-recovery"
        self._hand_on = hand_on
        self._unreadable = unreadable
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=self._client_id, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Never blocks; any thread."""
        self._inbox.put(work)

    def check(self) -> None:
        """Raises what ended the thread, if something did."""
        if self._failure is not None:
            raise self._failure

    def close(self, timeout_s: float = 1.0) -> None:
        self._stop.set()
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with LogReader(self._profile, client_id=self._client_id) as reader:
                attempts = AttemptLog(reader, unreadable=self._unreadable)
                while not self._stop.is_set():
                    self._recover(attempts, self._next_batch(attempts))
        except Exception as error:
            self._failure = error

    def _next_batch(self, attempts: AttemptLog) -> list[Work]:
        """All that waits now, at least one unless it is time to stop."""
        try:
            batch = [self._inbox.get(timeout=_FORGET_SECONDS)]
        except Empty:
            attempts.forget()
            batch = [self._inbox.get()]
        while not self._inbox.empty():
            batch.append(self._inbox.get())
        return [work for work in batch if work is not None and work.partition.held]

    def _recover(self, attempts: AttemptLog, batch: list[Work]) -> None:
        """Reads again, until it succeeds, what can't be read: without its log a request can't go on."""
        while batch and not self._stop.is_set():
            try:
                found = attempts.read(batch)
            except (LogUnreachable, KafkaException) as error:
                log.warning("token logs can't be read, trying again: %s", error)
                self._stop.wait(_RETRY_SECONDS)
                continue
            for work in batch:
                work.prior = found[work.order.request_id]
                self._hand_on(work)
            return
