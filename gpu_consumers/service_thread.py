"""A thread whose end, and whose error, an event loop hears of."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

log = logging.getLogger("headrace.worker")


class ServiceThread:
    """Runs `target`, and sets `ended` on the loop that made it when that returns or raises.

    It is a daemon: a step of the engine that takes minutes does not keep the process.
    """

    def __init__(self, name: str, target: Callable[[], None], ended: asyncio.Event) -> None:
        self.name = name
        self.failure: Exception | None = None
        self._target = target
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._target()
        except Exception as error:
            log.exception("the %s thread ended with an error", self.name)
            self.failure = error
        finally:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._ended.set)
