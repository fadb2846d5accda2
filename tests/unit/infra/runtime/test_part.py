"""A part as a process: how it begins and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys

from infra.runtime.process import READY_LINE
from tests.timing import within

PART = """
import atexit, asyncio, os, signal, sys
from infra.runtime.part import run_part

class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("garbage was looked for", flush=True)

async def serve(stop, ready):
    Cycle()
    ready()
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
    print("stopped", flush=True)

atexit.register(lambda: print("what was to be done at the end", flush=True))
run_part(serve, int(sys.argv[1]), "info")
"""


def test_a_part_tells_that_it_is_ready_stops_when_told_and_ends_without_looking_for_garbage() -> None:
    hears, says = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", PART, str(says)], pass_fds=[says], capture_output=True, text=True, check=True,
        timeout=within(30),
    )  # fmt: skip
    os.close(says)
    assert os.read(hears, 100) == READY_LINE
    os.close(hears)
    assert done.stdout.splitlines() == ["stopped", "what was to be done at the end"]
    assert "headrace: ready" in done.stderr
