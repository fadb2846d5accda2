"""A notice that this machine is about to be taken away, as a file: what watches a cloud's metadata touches it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

_LOOK_SECONDS = 0.5

log = logging.getLogger("headrace.worker")


async def watch_for_notice(file: Path, stop: asyncio.Event) -> None:
    """Sets `stop` when the file is there; at once, if it is there already. Returns when `stop` is set."""
    while not stop.is_set():
        if await asyncio.to_thread(file.exists):
            log.warning("%s is there: this machine is about to be taken away", file)
            stop.set()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stop.wait()
