"""Decides what to start, stop and restart. A pure state machine: events and `now` go in, actions come out.

    waiting -> starting -> ready -> stopping -> stopped
                  ^          |         |
                  +- restarting <------+        failed: not to be started again

- A part starts when everything that it needs is ready.
- A part that ends is started again after a backoff that doubles.
- A part that was never ready and ended too often, or that says it can't work as it is set up, has failed, and then
  everything stops.
- When a part that carries its dependants (the broker with its log in memory) ends, they are stopped, and started again
  behind it, in order.
- Stopping goes in reverse order: the next is told to stop when the one before has ended or has had its turn; a part
  that others need is kept up for them for a while longer. At the end of the grace everything left is killed.

`now` is in seconds on any clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from infra.runtime.parts import (
    EXIT_CANNOT_WORK,
    Action,
    Backoff,
    BecameReady,
    Ended,
    Event,
    Kill,
    Part,
    PartSpec,
    PartState,
    Start,
    StopPlan,
    StopRequested,
    SystemState,
    Terminate,
    Tick,
)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The state of everything. `parts` stand in starting order: each after what it needs."""

    parts: Mapping[str, Part]
    backoff: Backoff = field(default_factory=Backoff)
    stop_plan: StopPlan = field(default_factory=StopPlan)
    stopping_since: float | None = None

    @classmethod
    def plan(
        cls, specs: Iterable[PartSpec], backoff: Backoff | None = None, stop_plan: StopPlan | None = None
    ) -> Supervisor:
        """Nothing runs yet; the first Tick starts what needs nothing.

        Raises ValueError for a part that stands before something that it needs.
        """
        parts: dict[str, Part] = {}
        for spec in specs:
            if missing := [need for need in spec.needs if need not in parts]:
                raise ValueError(f"{spec.name} needs {', '.join(missing)}, which must stand before it")
            parts[spec.name] = Part(spec)
        return cls(parts, backoff or Backoff(), stop_plan or StopPlan())

    @property
    def state(self) -> SystemState:
        states = [part.state for part in self.parts.values()]
        if self.stopping_since is not None:
            if not all(state.is_over for state in states):
                return SystemState.STOPPING
            return SystemState.FAILED if PartState.FAILED in states else SystemState.STOPPED
        if all(state is PartState.READY for state in states):
            return SystemState.READY
        came_up = all(part.was_ready for part in self.parts.values())
        return SystemState.DEGRADED if came_up else SystemState.STARTING

    def step(self, event: Event, now: float) -> tuple[Supervisor, list[Action]]:
        """The next state, and what to do to get there, in this order. Events that come too late change nothing."""
        step = _Step(self, now)
        step.take(event)
        step.decide()
        return replace(self, parts=step.parts, stopping_since=step.stopping_since), step.actions

    def next_deadline(self) -> float | None:
        """When the next Tick is due if nothing else happens before; None if nothing is due."""
        parts = self.parts.values()
        hanging = [part for part in parts if part.state is PartState.STOPPING and not part.killed]
        if self.stopping_since is not None:
            due = [self.stopping_since + self.stop_plan.grace_seconds] if hanging else []
            following = next_to_stop(self.parts, self.stopping_since, self.stop_plan)
            return min([*due, following[1]] if following else due, default=None)
        due = [part.since + self.stop_plan.grace_seconds for part in hanging]
        due += [part.not_before for part in parts if part.state.is_pending and can_start(part, self.parts)]
        due += [part.since + part.spec.ready_within_seconds for part in parts if part.state is PartState.STARTING]
        return min(due, default=None)


def can_start(part: Part, parts: Mapping[str, Part]) -> bool:
    """Whether what it needs is ready, and nobody is left who lived on its last run."""
    if any(parts[need].state is not PartState.READY for need in part.spec.needs):
        return False
    return not (
        part.spec.carries_dependants and any(parts[name].state.is_running for name in dependants(part.spec.name, parts))
    )


def dependants(name: str, parts: Mapping[str, Part]) -> list[str]:
    """Everything that needs it, directly or through others, in starting order."""
    found = [name]
    for other, part in parts.items():
        if any(need in found for need in part.spec.needs):
            found.append(other)
    return found[1:]


def next_to_stop(parts: Mapping[str, Part], since: float, plan: StopPlan) -> tuple[str, float] | None:
    """The part that is to be told to stop next, and from when on; None if all have been told.

    since: when the stop was requested.
    """
    for name, part in reversed(list(parts.items())):
        if part.state not in (PartState.STARTING, PartState.READY):
            continue
        told = [other.since + plan.turn_seconds for other in parts.values() if other.state is PartState.STOPPING]
        needed = any(parts[other].state.is_running for other in dependants(name, parts))
        return name, max([*told, since + plan.dependants_seconds if needed else since])
    return None


class _Step:
    """One step in the making."""

    def __init__(self, before: Supervisor, now: float) -> None:
        self.parts = dict(before.parts)
        self.stopping_since = before.stopping_since
        self.actions: list[Action] = []
        self._backoff = before.backoff
        self._stop_plan = before.stop_plan
        self._now = now

    def take(self, event: Event) -> None:
        match event:
            case BecameReady(name) if self.parts[name].state is PartState.STARTING:
                self._move(name, PartState.READY, was_ready=True)
            case Ended(name, status, why) if self.parts[name].state.is_running:
                self._ended(self.parts[name], status, why)
            case StopRequested(at_once):
                self._begin_stop(at_once)
            case BecameReady() | Ended() | Tick():
                pass

    def decide(self) -> None:
        if any(part.state is PartState.FAILED for part in self.parts.values()):
            self._begin_stop(at_once=False)
        if self.stopping_since is None:
            self._take_dependants_down()
            self._start_what_can()
            self._end_what_hangs()
        else:
            self._stop_in_turn(self.stopping_since)

    def _move(self, name: str, state: PartState, **changes: object) -> None:
        changes = {"since": self._now, "comes_back": False, "killed": False, **changes}
        self.parts[name] = replace(self.parts[name], state=state, **changes)  # type: ignore[arg-type]

    def _ended(self, part: Part, status: int, why: str) -> None:
        name, now = part.spec.name, self._now
        if self.stopping_since is not None:
            self._move(name, PartState.STOPPED)
            return
        if part.comes_back:
            self._move(name, PartState.RESTARTING, not_before=now)
            return
        steady = part.state is PartState.READY and now - part.since >= self._backoff.forgiven_after_seconds
        failures = 1 if steady else part.failures + 1
        tired = not part.was_ready and failures >= self._backoff.give_up_after
        self._move(
            name,
            PartState.FAILED if tired or status == EXIT_CANNOT_WORK else PartState.RESTARTING,
            not_before=now + self._backoff.delay(failures),
            failures=failures,
            restarts=part.restarts + 1,
            why=part.why if part.state is PartState.STOPPING else why,  # why it was told to end says more
        )

    def _begin_stop(self, at_once: bool) -> None:
        if self.stopping_since is None:
            self.stopping_since = self._now
            for name, part in self.parts.items():
                if part.state.is_pending:
                    self._move(name, PartState.STOPPED)
        if at_once:
            self.stopping_since = min(self.stopping_since, self._now - self._stop_plan.grace_seconds)

    def _take_dependants_down(self) -> None:
        for name, part in list(self.parts.items()):
            if not (part.spec.carries_dependants and part.state.is_pending):
                continue
            for other in reversed(dependants(name, self.parts)):
                if self.parts[other].state in (PartState.STARTING, PartState.READY):
                    self._move(other, PartState.STOPPING, comes_back=True, why=f"{name} is restarting")
                    self.actions.append(Terminate(other))

    def _start_what_can(self) -> None:
        for name, part in list(self.parts.items()):
            if part.state.is_pending and self._now >= part.not_before and can_start(part, self.parts):
                self._move(name, PartState.STARTING)
                self.actions.append(Start(name))

    def _end_what_hangs(self) -> None:
        for name, part in list(self.parts.items()):
            patience = part.spec.ready_within_seconds
            if part.state is PartState.STARTING and self._now >= part.since + patience:
                self._move(name, PartState.STOPPING, why=f"it was not ready within {patience:g} s")
                self.actions.append(Terminate(name))
            elif part.state is PartState.STOPPING and self._now >= part.since + self._stop_plan.grace_seconds:
                self._kill(name)

    def _stop_in_turn(self, since: float) -> None:
        if self._now >= since + self._stop_plan.grace_seconds:
            for name, part in reversed(list(self.parts.items())):
                if part.state.is_running:
                    self._kill(name)
            return
        following = next_to_stop(self.parts, since, self._stop_plan)
        if following is not None and self._now >= following[1]:
            self._move(following[0], PartState.STOPPING)
            self.actions.append(Terminate(following[0]))

    def _kill(self, name: str) -> None:
        part = self.parts[name]
        if not part.killed:
            self.parts[name] = replace(part, state=PartState.STOPPING, killed=True)
            self.actions.append(Kill(name))
