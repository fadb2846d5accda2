"""The port between the scheduler and whatever says whose turn it is. The fair queue is ours; tests bring baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from gpu_consumers.sequence import Sequence

CanFinish = Callable[[Sequence], bool]
"""Whether its deadline can still be met, if it gets a slot now."""


@dataclass(frozen=True, slots=True)
class Precedence:
    """Tenants that have much may be passed over, in favour of one that was served a little more, but has little.

    passed_over: whether a tenant has so much. It is true of few.
    tolerance: how much more, in service of a tenant of weight 1.
    """

    passed_over: Callable[[str], bool] = lambda tenant: False
    tolerance: float = 0.0


NO_PRECEDENCE: Final = Precedence()


@dataclass(frozen=True, slots=True)
class Turn:
    """A waiting sequence whose turn it is.

    rank: the class in which it is served, lower goes first.
    arrival: its place in the order of arrival, which it keeps when it comes back.
    resumed: it ran before, and its input is paid for.
    """

    sequence: Sequence
    rank: int
    arrival: int
    resumed: bool = False


class WaitingQueue(Protocol):
    """Owned by the scheduler. Pure."""

    def __len__(self) -> int: ...

    def __contains__(self, request_id: str) -> bool: ...

    @property
    def waiting_by_tenant(self) -> dict[str, int]: ...

    def waiting_of(self, tenant: str) -> int:
        """How many of its sequences wait."""
        ...

    def is_waiting(self, tenant: str) -> bool: ...

    def served(self, tenant: str) -> float:
        """Weighted service that the tenant has received."""
        ...

    def weight(self, tenant: str) -> float: ...

    def set_weights(self, weights: Mapping[str, float]) -> None: ...

    def push(self, sequence: Sequence) -> None:
        """Raises ValueError for a request that is waiting already."""
        ...

    def put_back(self, turn: Turn, sequence: Sequence) -> None:
        """What `take` took out has lost its slot: `sequence` is what is left of it, and goes before its tenant's."""
        ...

    def next(self, now_us: int, can_finish: CanFinish, precedence: Precedence = NO_PRECEDENCE) -> Turn | None:
        """Whose turn it is; None if nobody waits."""
        ...

    def take(self, turn: Turn) -> None:
        """It gets a slot: out of the queue, and its input is charged unless it is resumed."""
        ...

    def remove(self, request_id: str) -> bool:
        """Take a sequence out unserved. False if it doesn't wait."""
        ...

    def give_back_input(self, tenant: str, tokens: int) -> None:
        """So many of the prefix that `take` charged need not be run: they are no service."""
        ...

    def charge_output(self, tenant: str) -> None:
        """One output token was made for this tenant."""
        ...

    def check_integrity(self) -> None:
        """Raises AssertionError when the books don't agree."""
        ...
