from __future__ import annotations

import pytest

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
    StopPlan,
    StopRequested,
    SystemState,
    Terminate,
    Tick,
)
from infra.runtime.supervisor import Supervisor

BACKOFF = Backoff(first_seconds=1.0, max_seconds=4.0, forgiven_after_seconds=30.0, give_up_after=3)
STOP_PLAN = StopPlan(grace_seconds=4.0, turn_seconds=1.0, dependants_seconds=3.0)


class Run:
    """Drives a supervisor by hand: events in, actions collected."""

    def __init__(self, *specs: PartSpec) -> None:
        self.supervisor = Supervisor.plan(specs, BACKOFF, STOP_PLAN)
        self.now = 100.0

    def send(self, event: Event, after: float = 0.0) -> list[Action]:
        self.now += after
        self.supervisor, actions = self.supervisor.step(event, self.now)
        return actions

    def all_ready(self) -> None:
        actions = self.send(Tick())
        while actions:
            actions = [new for action in actions for new in self.send(BecameReady(action.name))]

    def system(self) -> SystemState:
        return self.supervisor.state

    def state_of(self, name: str) -> PartState:
        return self.supervisor.parts[name].state


def platform(log_in_memory: bool = False) -> Run:
    return Run(
        PartSpec("broker", carries_dependants=log_in_memory),
        PartSpec("streams", needs=("broker",)),
        PartSpec("gateway", needs=("broker",)),
    )


def test_a_part_starts_only_when_what_it_needs_is_ready() -> None:
    run = platform()

    assert run.send(Tick()) == [Start("broker")]
    assert run.system() is SystemState.STARTING
    assert run.send(BecameReady("broker")) == [Start("streams"), Start("gateway")]
    assert run.send(BecameReady("gateway")) == []
    assert run.send(BecameReady("streams")) == []
    assert run.system() is SystemState.READY
    assert run.supervisor.next_deadline() is None


def test_a_plan_with_a_part_before_its_need_is_refused() -> None:
    with pytest.raises(ValueError, match="streams needs broker"):
        Supervisor.plan([PartSpec("streams", needs=("broker",)), PartSpec("broker")])


def test_a_part_that_dies_comes_back_after_a_backoff_that_doubles_and_says_why() -> None:
    run = platform()
    run.all_ready()

    for delay in (1.0, 2.0, 4.0, 4.0):
        assert run.send(Ended("gateway", 1, "boom")) == []
        assert run.system() is SystemState.DEGRADED
        assert run.supervisor.parts["gateway"].why == "boom"
        assert run.supervisor.next_deadline() == run.now + delay
        assert run.send(Tick(), after=delay / 2) == []
        assert run.send(Tick(), after=delay / 2) == [Start("gateway")]
    run.send(BecameReady("gateway"))
    assert run.system() is SystemState.READY


def test_a_part_that_ran_well_for_long_starts_with_a_short_backoff_again() -> None:
    run = platform()
    run.all_ready()
    run.send(Ended("gateway", 1, "boom"))
    run.send(Tick(), after=1.0)
    run.send(BecameReady("gateway"))

    run.send(Ended("gateway", 1, "boom"), after=31.0)

    assert run.supervisor.next_deadline() == run.now + 1.0


def test_a_broker_that_keeps_its_log_comes_back_alone() -> None:
    run = platform(log_in_memory=False)
    run.all_ready()

    assert run.send(Ended("broker", 9, "killed")) == []
    assert run.send(Tick(), after=1.0) == [Start("broker")]
    assert run.state_of("streams") is PartState.READY


def test_a_broker_that_lost_its_log_takes_everything_down_and_brings_it_back_in_order() -> None:
    run = platform(log_in_memory=True)
    run.all_ready()

    assert run.send(Ended("broker", 9, "killed")) == [Terminate("gateway"), Terminate("streams")]
    assert run.send(Ended("gateway", 0, ""), after=2.0) == []
    assert run.send(Ended("streams", 0, "")) == [Start("broker")]
    assert run.send(BecameReady("broker")) == [Start("streams"), Start("gateway")]
    assert run.supervisor.parts["gateway"].failures == 0


def test_a_part_that_was_never_ready_is_given_up_and_everything_stops() -> None:
    run = platform()
    run.send(Tick())
    run.send(BecameReady("broker"))
    run.send(BecameReady("streams"))

    for delay in (1.0, 2.0):
        run.send(Ended("gateway", 1, "boom"))
        assert run.send(Tick(), after=delay) == [Start("gateway")]
    assert run.send(Ended("gateway", 1, "boom")) == [Terminate("streams")]
    assert run.send(Ended("streams", 0, "")) == [Terminate("broker")]
    run.send(Ended("broker", 0, ""))
    assert run.state_of("gateway") is PartState.FAILED
    assert run.system() is SystemState.FAILED


def test_a_part_that_says_it_cannot_work_is_not_tried_again() -> None:
    run = platform()
    run.all_ready()

    run.send(Ended("gateway", EXIT_CANNOT_WORK, "HEADRACE_SLOTS=0 is not usable"))

    assert run.state_of("gateway") is PartState.FAILED
    assert run.system() is SystemState.STOPPING


def test_a_part_that_does_not_get_ready_is_ended_and_started_again() -> None:
    run = Run(PartSpec("streams", ready_within_seconds=60.0))
    run.send(Tick())

    assert run.supervisor.next_deadline() == run.now + 60.0
    assert run.send(Tick(), after=60.0) == [Terminate("streams")]
    assert run.send(Tick(), after=4.0) == [Kill("streams")]
    run.send(Ended("streams", -9, "it was not ready within 60 s"))
    assert run.send(Tick(), after=1.0) == [Start("streams")]


def test_stopping_goes_in_reverse_order_one_after_the_other() -> None:
    run = platform()
    run.all_ready()

    assert run.send(StopRequested()) == [Terminate("gateway")]
    assert run.send(Tick(), after=0.5) == []
    assert run.send(Ended("gateway", 0, "")) == [Terminate("streams")]
    assert run.send(Ended("streams", 0, "")) == [Terminate("broker")]
    assert run.send(Ended("broker", 0, "")) == []
    assert run.system() is SystemState.STOPPED


def test_a_part_that_others_need_is_kept_up_for_them_but_not_for_ever() -> None:
    run = platform()
    run.all_ready()

    assert run.send(StopRequested()) == [Terminate("gateway")]
    assert run.send(Tick(), after=1.0) == [Terminate("streams")]
    assert run.send(Tick(), after=1.0) == []
    assert run.send(Tick(), after=1.0) == [Terminate("broker")]


def test_what_does_not_stop_within_the_grace_is_killed() -> None:
    run = platform()
    run.all_ready()
    run.send(StopRequested())

    assert run.send(Tick(), after=4.0) == [Kill("gateway"), Kill("streams"), Kill("broker")]
    assert run.send(Tick(), after=4.0) == []


def test_a_second_request_kills_at_once() -> None:
    run = platform()
    run.all_ready()
    run.send(StopRequested())

    assert run.send(StopRequested(at_once=True)) == [Kill("gateway"), Kill("streams"), Kill("broker")]


def test_events_of_a_part_that_is_not_running_change_nothing() -> None:
    run = platform()
    before = run.supervisor

    run.supervisor, actions = before.step(Ended("gateway", 1, "late"), 100.0)

    assert actions == [Start("broker")]
    assert run.state_of("gateway") is PartState.WAITING
    run.send(BecameReady("streams"))
    assert run.state_of("streams") is PartState.WAITING
