"""A GPU consumer as a process of its own, so that a test can kill it. Settings come pickled on its input.

Prints `ready` when it is.
"""

from __future__ import annotations

import asyncio
import pickle
import sys

from gpu_consumers import service
from gpu_consumers.settings import WorkerSettings


async def main() -> None:
    settings = pickle.load(sys.stdin.buffer)
    assert isinstance(settings, WorkerSettings)
    await service.run(settings, stop=asyncio.Event(), ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    asyncio.run(main())
