from __future__ import annotations

import io

import pytest
from rich.console import Console

from infra.runtime.display import LiveDisplay, PlainDisplay, detail_of, display_for
from infra.runtime.parts import Backoff, BecameReady, Ended, Event, Part, PartSpec, PartState, Tick
from infra.runtime.supervisor import Supervisor

SPEC = PartSpec("gateway", needs=("broker",))


@pytest.mark.parametrize(
    ("part", "detail"),
    [
        (Part(SPEC, PartState.WAITING), "for broker"),
        (Part(SPEC, PartState.STARTING), ""),
        (Part(SPEC, PartState.READY), "http://here"),
        (Part(SPEC, PartState.READY, restarts=2, why="killed by SIGKILL"),
         "http://here (restarted 2x, last: killed by SIGKILL)"),
        (Part(SPEC, PartState.RESTARTING, why="exit status 1: boom"), "exit status 1: boom"),
        (Part(SPEC, PartState.FAILED, why="no Java"), "no Java"),
        (Part(SPEC, PartState.STOPPED, why="no Java"), ""),
    ],
)  # fmt: skip
def test_behind_the_state_stands_what_a_person_wants_to_know_then(part: Part, detail: str) -> None:
    assert detail_of(part, "http://here") == detail


def supervisor_after(*events: Event) -> list[Supervisor]:
    supervisor = Supervisor.plan([PartSpec("broker"), SPEC], Backoff())
    history = [supervisor]
    for event in (Tick(), *events):
        supervisor, _ = supervisor.step(event, 1.0)
        history.append(supervisor)
    return history


def test_without_a_terminal_each_change_is_one_line() -> None:
    output = io.StringIO()
    display = display_for(Console(file=output, width=40), {"broker": "at 127.0.0.1:9092", "gateway": "http://here"})
    assert isinstance(display, PlainDisplay)

    display.open()
    for supervisor in supervisor_after(BecameReady("broker"), BecameReady("gateway"), Ended("gateway", 1, "[boom]")):
        display.show(supervisor)
        display.show(supervisor)
    display.close()

    assert output.getvalue().splitlines() == [
        "broker       starting",
        "broker       ready       at 127.0.0.1:9092",
        "gateway      starting",
        "gateway      ready       http://here",
        "gateway      restarting  [boom]",
    ]


def test_on_a_terminal_every_part_has_one_line_and_the_last_state_stays() -> None:
    output = io.StringIO()
    display = display_for(Console(file=output, force_terminal=True, color_system=None, width=60), {})
    assert isinstance(display, LiveDisplay)

    display.open()
    for supervisor in supervisor_after(BecameReady("broker"), BecameReady("gateway")):
        display.show(supervisor)
    display.close()

    assert [line.split() for line in output.getvalue().splitlines()[-3:-1]] == [
        ["\x1b[?25lbroker", "ready"],
        ["gateway", "ready"],
    ]
