"""Worker processes of one deployment that come and go: killed, stopped and woken, told to leave, and replaced."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpu_consumers.settings import WorkerSettings
from tests.timing import within
from tests.worker_stage import SettingsPickler, comes_true


class Fleet:
    """Use `running_fleet`. Names are never given twice.

    statuses: of those that ended, by name.
    """

    def __init__(self, settings: Callable[[str], WorkerSettings], step_seconds: float) -> None:
        """settings: of a worker of this name."""
        self.statuses: dict[str, int] = {}
        self._settings = settings
        self._step_seconds = step_seconds
        self._numbers = itertools.count(1)
        self._pids: dict[str, int] = {}
        self._ready: set[str] = set()
        self._asleep: set[str] = set()
        self._changed = threading.Condition()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.zygote"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._ear = threading.Thread(target=self._listen, name="fleet", daemon=True)
        self._ear.start()

    @property
    def awake(self) -> list[str]:
        """Those that are ready and not stopped, the oldest first."""
        assert self._zygote.poll() is None, "the zygote has died"
        with self._changed:
            return [name for name in self._pids if name in self._ready and name not in self._asleep]

    def start(self) -> str:
        """Another worker, which will be ready soon; its name."""
        name = f"worker-{next(self._numbers)}"
        assert self._zygote.stdin is not None
        SettingsPickler(self._zygote.stdin).dump((self._settings(name), self._step_seconds))
        self._zygote.stdin.flush()
        return name

    async def until_awake(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many are."""
        assert await comes_true(lambda: len(self.awake) >= count, seconds), f"{self.awake} of {count} are awake"

    async def until_ended(self, name: str, seconds: float = 30.0) -> int:
        """Its status."""
        assert await comes_true(lambda: name in self.statuses, seconds), f"{name} did not end"
        return self.statuses[name]

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)

    def tell_to_leave(self, name: str) -> None:
        self._signal(name, signal.SIGTERM)

    def put_to_sleep(self, name: str) -> None:
        """It does not notice that time passes, and goes on in mid-sentence when it is woken."""
        with self._changed:
            self._asleep.add(name)
        self._signal(name, signal.SIGSTOP)

    def wake(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)
        with self._changed:
            self._asleep.discard(name)

    def close(self) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(within(10))
        self._ear.join(within(10))
        assert self._zygote.stdout is not None
        self._zygote.stdout.close()

    def _signal(self, name: str, number: signal.Signals) -> None:
        with self._changed:
            pid = self._pids.get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _listen(self) -> None:
        assert self._zygote.stdout is not None
        for line in self._zygote.stdout:
            what, name, *rest = line.decode().split()
            with self._changed:
                if what == "started":
                    self._pids[name] = int(rest[0])
                elif what == "ready":
                    self._ready.add(name)
                elif what == "ended":
                    self._pids.pop(name, None)
                    self.statuses[name] = int(rest[0])


@contextmanager
def running_fleet(settings: Callable[[str], WorkerSettings], step_seconds: float) -> Iterator[Fleet]:
    """Without a worker at first; all that are left are killed at the end of the block."""
    fleet = Fleet(settings, step_seconds)
    try:
        yield fleet
    finally:
        fleet.close()
