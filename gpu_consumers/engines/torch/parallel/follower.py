"""The process of a rank that is not the worker's: it runs what it is told, until it is told to end or is alone."""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

import torch

from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.parallel.ranks import Ranks
from gpu_consumers.engines.torch.parallel.shards import Shard


@dataclass(frozen=True, slots=True)
class Joining:
    """How a rank finds the others. port: of the store on rank 0, on loopback."""

    shard: Shard
    port: int
    device: str

    def ranks(self) -> Ranks:
        """Waits for the others."""
        return Ranks(self.shard, port=self.port, device=torch.device(self.device))


class Loader(Protocol):
    """Loads a rank's part of the model: `load_torch_engine` with all else bound by `functools.partial`."""

    def __call__(self, *, ranks: Ranks, device: str) -> TorchEngine: ...


def follow(orders: Connection, joining: Joining, load: Loader) -> None:
    """The whole life of a follower. Tells None when it is ready, or why it never will be."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; rank 0 says when it is over
    with ExitStack() as stack:
        try:
            ranks = joining.ranks()
            stack.callback(ranks.close)
            engine = load(ranks=ranks, device=joining.device)
        except Exception as error:
            orders.send(f"{type(error).__name__}: {error}")
            return
        orders.send(None)
        with suppress(EOFError):  # rank 0 is gone
            while (order := orders.recv()) is not None:
                engine.follow(order)
