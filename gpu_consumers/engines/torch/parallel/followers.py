"""The followers as rank 0 has them: processes that it starts, tells what to run, and ends."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Final

import torch

from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.parallel.follower import Joining, Loader, follow
from gpu_consumers.engines.torch.parallel.orders import Order
from gpu_consumers.engines.torch.parallel.ranks import Ranks, listening_store
from gpu_consumers.engines.torch.parallel.shards import Shard
from gpu_consumers.errors import EngineConfigurationError, EngineFailedError

_END_SECONDS: Final = 5.0


class Followers:
    """Ranks 1 to size - 1. They end with this process, however it ends: their pipe does.

    ranks: the group that this process is in with them, from when it is; it is closed with them.
    """

    def __init__(self, joinings: list[Joining], load: Loader) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share CUDA's state and torch's threads
        self.ranks: Ranks | None = None
        self._pipes: list[Connection] = []
        self._processes = []
        for joining in joinings:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=follow, args=(theirs, joining, load), name=f"rank-{joining.shard.rank}", daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def wait_until_ready(self) -> None:
        """Raises EngineConfigurationError with the reason of the first that can't load its part."""
        for rank, pipe in enumerate(self._pipes, 1):
            try:
                problem: str | None = pipe.recv()
            except EOFError:
                problem = "it ended while it loaded"
            if problem is not None:
                raise EngineConfigurationError(f"rank {rank} could not load its part of the model: {problem}")

    def step(self, order: Order) -> None:
        for rank, pipe in enumerate(self._pipes, 1):
            try:
                pipe.send(order)
            except OSError as error:
                raise EngineFailedError(f"rank {rank} of the model is gone: {error}") from error

    def close(self) -> None:
        """They end; one that does not is ended."""
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                continue  # it is gone
        for process in self._processes:
            process.join(_END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()
        if self.ranks is not None:
            self.ranks.close()


def load_sharded(size: int, device: str, load: Loader) -> TorchEngine:
    """The engine of rank 0, whose others are processes of this machine: with "cuda" one for each device.

    `load` is called here and in each of them. Raises what it raises, and EngineConfigurationError for the others.
    """
    on_cuda = device.startswith("cuda")
    if on_cuda and (device != "cuda" or size > torch.cuda.device_count()):
        raise EngineConfigurationError(
            f"{size} ranks need {size} CUDA devices, the first {size} of this machine: the device is {device!r}, and "
            f"torch finds {torch.cuda.device_count()} here"
        )
    store = listening_store(size)
    devices = [f"cuda:{rank}" if on_cuda else device for rank in range(size)]
    followers = Followers([Joining(Shard(rank, size), store.port, devices[rank]) for rank in range(1, size)], load)
    try:
        ranks = Ranks(Shard(0, size), port=store.port, device=torch.device(devices[0]), master=store)
        followers.ranks = ranks
        engine = load(ranks=ranks, device=devices[0])
        followers.wait_until_ready()
    except BaseException:
        followers.close()
        raise
    engine.lead(followers)
    return engine
