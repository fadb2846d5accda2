"""Forks workers: torch and all our modules are loaded once, so a new worker lives within half a second.

On its input come pickled pairs, one after the other: the settings of a worker, and how many seconds longer each of its
steps takes than a tiny model needs. On its output: `started NAME PID`, `ready NAME`, and
`ended NAME STATUS` (negative: the signal). When its input ends, or it dies, its workers are killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import signal
import sys
import traceback
from typing import NoReturn

import torch

from gpu_consumers import service
from gpu_consumers.settings import WorkerSettings
from tests.slow_engine import slow_steps

_PR_SET_PDEATHSIG = 1


def main() -> None:
    torch.set_num_threads(1)
    names: dict[int, str] = {}

    def reap(_number: int, _frame: object) -> None:
        while names:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            say("ended", names.pop(pid), os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, reap)
    while True:
        try:
            settings, step_seconds = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        assert isinstance(settings, WorkerSettings)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until it is known who the child is
        pid = os.fork()
        if not pid:
            _be_worker(settings, step_seconds)
        names[pid] = settings.worker_id
        say("started", settings.worker_id, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    for pid in list(names):
        os.kill(pid, signal.SIGKILL)


def say(*words: object) -> None:
    """One write, which is whole beside those of the workers."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _be_worker(settings: WorkerSettings, step_seconds: float) -> NoReturn:
    status = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        with slow_steps(step_seconds):
            asyncio.run(_serve(settings))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


async def _serve(settings: WorkerSettings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await service.run(settings, stop=stop, ready=lambda: say("ready", settings.worker_id))


if __name__ == "__main__":
    main()
