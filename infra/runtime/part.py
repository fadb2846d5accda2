"""The shell around a service that runs as a process of its own: signals, readiness, logging, exit status."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from infra.runtime.process import READY_LINE

Serve = Callable[[asyncio.Event, Callable[[], None]], Awaitable[None]]


def run_part(serve: Serve, ready_fd: int | None, log_level: str) -> None:
    """Run `serve(stop, ready)` until it returns. SIGTERM and SIGINT set `stop`.

    ready_fd: where the supervisor hears that the part is ready; None: only the log says so.

    The process has nothing left to do but to end then: the interpreter looks for no garbage on its way out, which with
    torch and transformers in memory takes as long as a second, or several on a busy machine.
    """
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    asyncio.run(_serve(serve, ready_fd))
    gc.freeze()


async def _serve(serve: Serve, ready_fd: int | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def ready() -> None:
        logging.getLogger("headrace").info("ready")
        if ready_fd is not None:
            os.write(ready_fd, READY_LINE)
            os.close(ready_fd)

    await serve(stop, ready)
