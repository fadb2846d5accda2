"""`headrace up` as an object: everything that serves requests, on this machine, for as long as a block runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

from infra.errors import PartsFailed
from infra.plan import Plan, about_of, launches_of
from infra.runtime.display import Display, display_for
from infra.runtime.parts import PartState, SystemState
from infra.runtime.processes import Processes
from infra.runtime.supervisor import Supervisor


class Platform:
    """Parts that are starting, running, or stopping."""

    def __init__(self, plan: Plan, display: Display) -> None:
        self.plan = plan
        self._display: Display | None = display
        self._ready = asyncio.Event()
        launches = launches_of(plan)
        self._processes = Processes(launches, plan.directory.logs, self._changed)
        self._task = asyncio.create_task(self._processes.run())

    async def wait_ready(self) -> bool:
        """Until everything is ready: True. False if it was asked to stop before. Raises PartsFailed."""
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            return True
        ready.cancel()
        await self.wait_stopped()
        return False

    async def wait_stopped(self) -> None:
        """Until every part has stopped. Raises PartsFailed if one had failed."""
        last = await asyncio.shield(self._task)
        if last.state is SystemState.FAILED:
            failed = [part for part in last.parts.values() if part.state is PartState.FAILED]
            raise PartsFailed(
                [(part.spec.name, part.why, self.plan.directory.log_of(part.spec.name)) for part in failed]
            )

    def hide(self) -> None:
        """Show the parts no more: the screen is somebody else's now."""
        if self._display is not None:
            self._display.close()
            self._display = None

    @property
    def is_stopping(self) -> bool:
        return self._processes.is_stopping

    def request_stop(self) -> None:
        """Stop in order; asked again, at once."""
        self._processes.request_stop()

    async def close(self) -> None:
        if not self._task.done():
            self.request_stop()
        await self._task
        self.hide()

    def _changed(self, supervisor: Supervisor) -> None:
        if self._display is not None:
            self._display.show(supervisor)
        if supervisor.state is SystemState.READY:
            self._ready.set()


@asynccontextmanager
async def running(plan: Plan, console: Console) -> AsyncIterator[Platform]:
    """Start the parts of the plan and show how they are; stop them at the end of the block."""
    display = display_for(console, about_of(plan))
    display.open()
    platform = Platform(plan, display)
    try:
        yield platform
    finally:
        await platform.close()
