"""The words of the supervisor: parts, their states, what happens to them, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# A part that ends with this status (EX_CONFIG of sysexits.h) can't work as it is set up: starting it again is no use.
EXIT_CANNOT_WORK = 78


class PartState(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_running(self) -> bool:
        """There is a process."""
        return self in (PartState.STARTING, PartState.READY, PartState.STOPPING)

    @property
    def is_pending(self) -> bool:
        """There is no process, and there will be one."""
        return self in (PartState.WAITING, PartState.RESTARTING)

    @property
    def is_over(self) -> bool:
        """There is no process, and none will come."""
        return self in (PartState.STOPPED, PartState.FAILED)


class SystemState(StrEnum):
    """All parts together. degraded: everything was ready once, and something is not now."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a start: after the n-th failure in a row first_seconds * 2**(n-1), at most max_seconds.

    forgiven_after_seconds: a part that was ready for so long has no failures behind it any more.
    give_up_after: a part that was never ready and failed so often is not started again.
    """

    first_seconds: float = 0.2
    max_seconds: float = 15.0
    forgiven_after_seconds: float = 30.0
    give_up_after: int = 4

    def delay(self, failures: int) -> float:
        return float(min(self.max_seconds, self.first_seconds * 2 ** min(failures - 1, 30)))


@dataclass(frozen=True, slots=True)
class StopPlan:
    """How long a stop may take.

    grace_seconds: from the request to stop to SIGKILL.
    turn_seconds: what a part has for itself before the next is told.
    dependants_seconds: from the request to stop, how long a part is kept up for those that need it and still run.
    """

    grace_seconds: float = 4.0
    turn_seconds: float = 0.5
    dependants_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class PartSpec:
    """A part as it is planned. carries_dependants: whoever needs it can't survive its restart."""

    name: str
    needs: tuple[str, ...] = ()
    carries_dependants: bool = False
    ready_within_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part as it is.

    since: when it came into its state. not_before: earliest next start, while pending.
    failures: in a row; restarts: in all. comes_back: it is stopping only because of what it needs.
    why: what made it restart or fail, in words.
    """

    spec: PartSpec
    state: PartState = PartState.WAITING
    since: float = 0.0
    not_before: float = 0.0
    failures: int = 0
    restarts: int = 0
    was_ready: bool = False
    comes_back: bool = False
    killed: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class BecameReady:
    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone. `why` is its last words, for people."""

    name: str
    status: int
    why: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """at_once: kill what runs, without grace."""

    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened; time went on."""


@dataclass(frozen=True, slots=True)
class Start:
    name: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask it to end (SIGTERM)."""

    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End it (SIGKILL)."""

    name: str


Event = BecameReady | Ended | StopRequested | Tick
Action = Start | Terminate | Kill
