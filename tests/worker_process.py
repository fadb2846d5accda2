"""A GPU consumer as a process of its own, so that a test can stop or kill it. Settings come pickled on its input.

Prints `ready` when it is.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable

from gpu_consumers import service
from gpu_consumers.settings import WorkerSettings
from infra.runtime.part import run_part


def main() -> None:
    settings = pickle.load(sys.stdin.buffer)
    assert isinstance(settings, WorkerSettings)

    async def serve(stop: asyncio.Event, ready: Callable[[], None]) -> None:
        await service.run(settings, stop=stop, ready=ready)

    run_part(serve, os.dup(sys.stdout.fileno()), "warning")


if __name__ == "__main__":
    main()
