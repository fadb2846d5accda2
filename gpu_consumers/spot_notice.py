"""A notice that this machine is about to be taken away, as a file: what watches a cloud's metadata touches it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

_LOOK_SECONDS = 0.5

log = logging.getLogger("headrace.worker")


async def watch_for_notice(file: Path, stop: asyncio.Event) -> None:
    """Sets `stop` when the file is there; at once, if it is there already. Returns when `stop` is set.

    A look that fails (no permission, a mount that is gone) is no notice, and it is looked again.
    """
    while not stop.is_set():
        if await asyncio.to_thread(_is_there, file):
            log.warning("%s is there: this machine is about to be taken away", file)
            stop.set()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stop.wait()


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError as error:
        log.error("no notice can be seen, %s can't be looked for: %s", file, error)
        return False
