"""Whatever parts do and whenever they do it, the supervisor keeps its promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infra.runtime.parts import (
    EXIT_CANNOT_WORK,
    Action,
    Backoff,
    BecameReady,
    Ended,
    Event,
    Kill,
    PartSpec,
    PartState,
    Start,
    StopRequested,
    SystemState,
    Terminate,
    Tick,
)
from infra.runtime.supervisor import Supervisor, dependants

NAMES = ("a", "b", "c", "d")


@st.composite
def plans(draw: st.DrawFn) -> list[PartSpec]:
    specs = []
    for position, name in enumerate(NAMES):
        needs = draw(st.lists(st.sampled_from(NAMES[:position]), unique=True)) if position else []
        specs.append(PartSpec(name, tuple(needs), draw(st.booleans()), ready_within_seconds=20.0))
    return specs


class Machine(RuleBasedStateMachine):
    """Processes that start, get ready, end and hang as they like, and an exact record of which run."""

    @initialize(specs=plans())
    def plan(self, specs: list[PartSpec]) -> None:
        self.supervisor = Supervisor.plan(specs, Backoff(give_up_after=10**6))
        self.running: set[str] = set()
        self.told_to_end: set[str] = set()
        self.now = 0.0
        self.send(Tick())

    def send(self, event: Event) -> None:
        stopping = self.supervisor.stopping_since is not None
        self.supervisor, actions = self.supervisor.step(event, self.now)
        for action in actions:
            self.check(action, stopping)

    def check(self, action: Action, stopping: bool) -> None:
        match action:
            case Start(name):
                spec = self.supervisor.parts[name].spec
                assert not stopping
                assert name not in self.running
                assert all(self.supervisor.parts[need].state is PartState.READY for need in spec.needs)
                if spec.carries_dependants:
                    assert not self.running & set(dependants(name, self.supervisor.parts))
                self.running.add(name)
            case Terminate(name) | Kill(name):
                assert name in self.running
                self.told_to_end.add(name)

    def end(self, name: str, status: int) -> None:
        self.running.discard(name)
        self.told_to_end.discard(name)
        self.send(Ended(name, status, "why"))

    @rule(name=st.sampled_from(NAMES))
    def part_gets_ready(self, name: str) -> None:
        if name in self.running:
            self.send(BecameReady(name))

    @rule(name=st.sampled_from(NAMES), status=st.sampled_from([0, 1, -9]))
    def part_ends(self, name: str, status: int) -> None:
        if name in self.running:
            self.end(name, status)

    @rule(seconds=st.floats(0.0, 40.0))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds
        self.send(Tick())

    @precondition(lambda self: self.supervisor.stopping_since is None)
    @rule(name=st.sampled_from(NAMES))
    def everything_comes_up_when_parts_behave(self, name: str) -> None:
        for _ in range(200):
            if self.supervisor.state is SystemState.READY:
                return
            for told in sorted(self.told_to_end):
                self.end(told, 0)
            for running in sorted(self.running):
                self.send(BecameReady(running))
            self.now = max(self.now, self.supervisor.next_deadline() or self.now)
            self.send(Tick())
        raise AssertionError(f"never ready: {self.supervisor.parts}")

    @rule(at_once=st.booleans())
    def stop(self, at_once: bool) -> None:
        self.send(StopRequested(at_once))

    @rule(name=st.sampled_from(NAMES))
    def part_cannot_work(self, name: str) -> None:
        if name in self.running:
            self.end(name, EXIT_CANNOT_WORK)
            assert self.supervisor.stopping_since is not None

    @invariant()
    def states_tell_what_runs(self) -> None:
        if hasattr(self, "supervisor"):
            states = {name: part.state for name, part in self.supervisor.parts.items()}
            assert {name for name, state in states.items() if state.is_running} == self.running

    @invariant()
    def the_next_tick_lies_ahead(self) -> None:
        if hasattr(self, "supervisor"):
            deadline = self.supervisor.next_deadline()
            assert deadline is None or deadline > self.now

    def teardown(self) -> None:
        """However it stands, a stop ends everything within the grace, even if no part listens."""
        if not hasattr(self, "supervisor"):
            return
        self.send(StopRequested())
        self.now += self.supervisor.stop_plan.grace_seconds
        self.send(Tick())
        assert self.told_to_end == self.running
        for name in sorted(self.running):
            self.end(name, -9)
        assert self.supervisor.state in (SystemState.STOPPED, SystemState.FAILED)
        assert self.supervisor.next_deadline() is None


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestSupervisor = Machine.TestCase
