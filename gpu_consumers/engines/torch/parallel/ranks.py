"""The process group of a model that lies on several ranks: what they add up and gather."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_consumers.engines.torch.parallel.shards import Shard
from gpu_consumers.engines.torch.projections import Product

Store = Any  # torch.distributed.TCPStore, which torch does not export to type checkers

TIMEOUT: Final = timedelta(seconds=60)
"""Of one sum over the ranks: who waits longer has lost a rank, and ends."""


class Ranks:
    """This process as one of several. There is one such group a process; `close` ends it."""

    def __init__(self, shard: Shard, *, port: int, device: torch.device, master: Store | None = None) -> None:
        """Waits until all have come, on loopback. master: rank 0's store, which listens at `port`.

        Raises DistError (of torch.distributed) or RuntimeError when they don't.
        """
        self.shard = shard
        self._device = device
        store = master or _store(port, shard.size, is_master=False)
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=shard.rank,
            world_size=shard.size,
            timeout=TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )

    def sum(self, part: Tensor) -> Tensor:
        """The sum over all ranks, in the place of `part`."""
        dist.all_reduce(part)
        return part

    def least(self, number: int) -> int:
        """The least that any rank has; all of them must ask."""
        least = torch.tensor(number, dtype=torch.int64, device=self._device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return int(least)

    def gather_columns(self, part: Tensor, columns: int) -> Tensor | None:
        """[rows, columns] on rank 0, from each rank's [rows, its span of them]; None on the others."""
        most = -(-columns // self.shard.size)
        padded = part.new_zeros(len(part), most)
        padded[:, : part.shape[1]] = part
        if self.shard.rank:
            dist.gather(padded, dst=0)
            return None
        parts = [torch.empty_like(padded) for _ in range(self.shard.size)]
        dist.gather(padded, parts, dst=0)
        return torch.cat(parts, dim=1)[:, :columns]

    def close(self) -> None:
        dist.destroy_process_group()


def listening_store(size: int) -> Store:
    """Where ranks find each other: on rank 0, at any free port of loopback."""
    return _store(0, size, is_master=True)


def _store(port: int, size: int, *, is_master: bool) -> Store:
    store: Any = dist.TCPStore  # type: ignore[attr-defined]
    return store("127.0.0.1", port, size, is_master=is_master, wait_for_workers=False, timeout=TIMEOUT)


class SummedLinear:
    """A projection that is cut by its inputs: each rank makes a part of the sum."""

    def __init__(self, part: Product, ranks: Ranks) -> None:
        self._part, self._ranks = part, ranks

    def __call__(self, x: Tensor) -> Tensor:
        return self._ranks.sum(self._part(x))

    def added_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return self(x).add_(residual)


class GatheredHead:
    """A head that is cut by the vocabulary: logits [rows, vocabulary] on rank 0, None on the others."""

    def __init__(self, part: Product, ranks: Ranks, vocabulary_size: int) -> None:
        self._part, self._ranks, self._vocabulary_size = part, ranks, vocabulary_size

    def __call__(self, x: Tensor) -> Tensor | None:
        return self._ranks.gather_columns(self._part(x), self._vocabulary_size)
