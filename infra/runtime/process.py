"""One part as a process: started behind the guard, with its own process group and log file, and heard when ready."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from infra.runtime.command import Command
from infra.runtime.guard import guarded
from infra.runtime.logs import last_lines, rotate
from infra.runtime.parts import EXIT_CANNOT_WORK, PartSpec

READY_LINE = b"ready\n"
KEPT_LOGS = 5


@dataclass(frozen=True, slots=True)
class PartLaunch:
    """How a part is started and how one hears that it is ready.

    command: what to run, asked before each start on a thread of its own; it may block for a few seconds and may raise
        an InfraError: then the part can't work.
    until_ready: blocks until the part is ready, on a thread; it is given a function that says when to give up (the
        process has ended). None: the part writes READY_LINE to the descriptor that `--ready-fd` names.
    about: what a person wants to know of it when it is ready (an address).
    """

    spec: PartSpec
    command: Callable[[], Command]
    until_ready: Callable[[Callable[[], bool]], None] | None = None
    about: str = ""


class PartProcess:
    """A started part. Only the thread of the event loop may start one: the guard's signal hangs on that thread."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, ready: io.FileIO | None) -> None:
        self._process = process
        self._log = log
        self._ready = ready

    @classmethod
    async def start(cls, command: Command, log: Path, *, reports_ready: bool) -> Self:
        """Start it with a fresh log. Raises OSError."""
        rotate(log, KEPT_LOGS)
        arguments = guarded(command.arguments, os.getpid())
        if not reports_ready:
            return cls(await _spawn(arguments, command, log), log, None)
        reading, writing = os.pipe()
        try:
            arguments = (*arguments, "--ready-fd", str(writing))
            process = await _spawn(arguments, command, log, (writing,))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(process, log, io.FileIO(reading))

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def says_ready(self) -> bool:
        """Wait for its ready line; False if it ends without one. To be called once."""
        assert self._ready is not None
        loop, something = asyncio.get_running_loop(), asyncio.Event()
        with self._ready as pipe:
            loop.add_reader(pipe.fileno(), something.set)
            try:
                await something.wait()
            finally:
                loop.remove_reader(pipe.fileno())
            return pipe.read(len(READY_LINE)) == READY_LINE

    async def wait(self) -> int:
        """Its exit status, when it has ended; what it left behind in its process group is killed then."""
        status = await self._process.wait()
        self.signal(signal.SIGKILL)
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it to the whole process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def why_it_ended(self) -> str:
        """For people: its status, and the last line that it wrote (which explains nothing if someone killed it)."""
        status = self._process.returncode
        assert status is not None
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        if -status in (signal.SIGKILL, signal.SIGTERM):
            return how
        lines = last_lines(self._log, 1)
        if status == EXIT_CANNOT_WORK and lines:
            return lines[0]  # it has said itself what is wrong
        return f"{how}: {lines[0]}" if lines else how


async def _spawn(
    arguments: tuple[str, ...], command: Command, log: Path, descriptors: tuple[int, ...] = ()
) -> asyncio.subprocess.Process:
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *arguments,
            cwd=command.directory,
            env=dict(command.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=descriptors,
            process_group=0,
        )
