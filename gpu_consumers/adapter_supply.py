"""Brings LoRA adapters to a worker's engine: the gate, with the thread that reads for it.

All is owned by the engine loop but for `registry_changed`. What another thread has to say is told at the next turn, and
`wake` is called so that there is one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue

from eventlog.clock import monotonic
from gpu_consumers.adapter_gate import AdapterGate, GateTurn, Install, key_of
from gpu_consumers.adapter_host import AdapterHost
from gpu_consumers.errors import AdapterUnavailableError
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.sequence import Sequence
from schemas.events import AdapterRegistered

log = logging.getLogger("headrace.worker.adapters")


class AdapterSupply:
    """Bounded as the gate is: few adapters are read at a time, and those who wait are the intake's to bound."""

    def __init__(
        self, host: AdapterHost, *, model_version: str, metrics: WorkerMetrics, wake: Callable[[], None]
    ) -> None:
        """model_version: that of the engine's weights. wake: any thread."""
        self._host = host
        self._metrics = metrics
        self._wake = wake
        self._gate = AdapterGate(host.adapter_places, model_version=model_version)
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._reads: SimpleQueue[AdapterRegistered | None] = SimpleQueue()
        # A daemon: a file system that hangs does not keep the process.
        self._reader = threading.Thread(target=self._read_all, name="adapters", daemon=True)
        self._reader.start()

    @property
    def waiting_count(self) -> int:
        return self._gate.waiting_count

    def registry_changed(self, adapters: Mapping[str, AdapterRegistered]) -> None:
        """These are registered now, by name; any thread."""
        self._tell(partial(self._gate.registry_changed, adapters))

    def submit(self, sequence: Sequence, now_us: int) -> None:
        """It waits for its adapter; a turn tells when it need not any more."""
        assert sequence.adapter is not None
        self._gate.submit(
            sequence.request_id,
            tenant=sequence.tenant,
            adapter=sequence.adapter,
            routed=sequence.adapter_registration,
            deadline_at_us=sequence.deadline_at_us,
            now_us=now_us,
        )

    def leave(self, request_id: str) -> None:
        """It ended, was cancelled or dropped; nothing if it is not here."""
        self._gate.leave(request_id)

    def due_in(self, now_us: int) -> float:
        """Seconds until a turn has something to do, if nobody calls `wake`; infinity for never."""
        at = self._gate.next_at_us
        return float("inf") if at is None else max(0.0, (at - now_us) / 1e6)

    def turn(self, now_us: int) -> GateTurn:
        """Between two steps: hear what there is, install what was read, and say who may go on. Short."""
        while True:
            try:
                self._news.get_nowait()()
            except Empty:
                break
        while (install := self._gate.next_install()) is not None:
            self._install(install)
        turn = self._gate.advance(now_us)
        for registration in turn.reads:
            self._reads.put(registration)
        self._metrics.adapters_placed.set(len(self._gate.places))
        self._metrics.adapters_awaited.set(self._gate.waiting_count)
        return turn

    def close(self) -> None:
        """The thread ends with what it reads now."""
        self._reads.put(None)

    def _install(self, install: Install) -> None:
        try:
            install.put(install.place)
        except AdapterUnavailableError as error:
            self._metrics.adapter_failures.inc()
            self._gate.not_installed(install.key, str(error))
            return
        self._gate.installed(install.key)
        self._metrics.adapter_loads.inc()
        if install.evicted is not None:
            self._metrics.adapter_evictions.inc()
        log.info("%s is in place %d, where %s was", install.key, install.place, install.evicted or "nothing")

    def _read_all(self) -> None:
        while (registration := self._reads.get()) is not None:
            self._tell(self._read(registration))

    def _read(self, registration: AdapterRegistered) -> Callable[[], None]:
        key, began = key_of(registration), monotonic()
        try:
            put = self._host.read_adapter(key, registration.location)
        except Exception as error:  # whatever is wrong with its files: those who ask for it fail, the thread goes on
            self._metrics.adapter_failures.inc()
            log.warning("%s can't be loaded from %s: %s", key, registration.location, error)
            known = isinstance(error, AdapterUnavailableError)
            reason = str(error) if known else "it can't be read"
            return partial(self._gate.unreadable, key, reason)
        self._metrics.adapter_load_seconds.observe(monotonic() - began)
        return partial(self._gate.arrived, key, put)

    def _tell(self, news: Callable[[], None]) -> None:
        self._news.put(news)
        self._wake()
