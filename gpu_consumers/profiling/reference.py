"""What this machine can do at best, measured with nothing around it: the roof over a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

_LEAST_RUNS: Final = 3


@dataclass(frozen=True, slots=True)
class Reference:
    """bytes_per_second: to and from memory, in the better of a read and a copy of a tensor far larger than caches.
    flops: floating-point operations a second in a square matrix product of the dtype. device, threads: of whom."""

    bytes_per_second: float
    flops: float
    device: str
    threads: int

    @property
    def ridge(self) -> float:
        """Operations for each byte at which a step passes from memory-bound to compute-bound."""
        return self.flops / self.bytes_per_second


def measure_reference(device: str, dtype: str, *, seconds: float, clock: Callable[[], float]) -> Reference:
    """Best of as many runs as there is time for; three of each at least."""
    import torch

    where = torch.device(device)
    on_cpu = where.type == "cpu"
    budget = seconds / 3
    with torch.inference_mode():
        large = torch.ones((256 << 20) // 4 if on_cpu else (1 << 30) // 4, dtype=torch.float32, device=where)
        other = torch.empty_like(large)
        size = large.numel() * large.element_size()
        read = size / _best(large.sum, where, budget, clock)
        copied = 2 * size / _best(lambda: other.copy_(large), where, budget, clock)
        side = 1024 if on_cpu else 8192
        left = torch.ones((side, side), dtype=getattr(torch, dtype), device=where)
        right = torch.ones_like(left)
        product = _best(lambda: left @ right, where, budget, clock)
    return Reference(max(read, copied), 2.0 * side**3 / product, _name(where), torch.get_num_threads())


def synchronizer(device: str) -> Callable[[], None]:
    """Waits for all that was given to the device; nothing to wait for on a CPU."""
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def _best(run: Callable[[], object], device: torch.device, budget_seconds: float, clock: Callable[[], float]) -> float:
    """Seconds of the fastest run."""
    synchronize = synchronizer(str(device))
    run()
    synchronize()
    best, runs, began = float("inf"), 0, clock()
    while runs < _LEAST_RUNS or clock() - began < budget_seconds:
        started = clock()
        run()
        synchronize()
        best, runs = min(best, clock() - started), runs + 1
    return best


def _name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
