"""One readable line for each part: live on a terminal, one line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra.runtime.parts import Part, PartState
from infra.runtime.supervisor import Supervisor

_STYLES: Mapping[PartState, str] = {
    PartState.WAITING: "dim",
    PartState.STARTING: "yellow",
    PartState.READY: "green",
    PartState.RESTARTING: "red",
    PartState.STOPPING: "yellow",
    PartState.STOPPED: "dim",
    PartState.FAILED: "bold red",
}


class Display(Protocol):
    """Shows the parts as they change, between `open` and `close`."""

    def open(self) -> None: ...

    def show(self, supervisor: Supervisor) -> None: ...

    def close(self) -> None: ...


def display_for(console: Console, about: Mapping[str, str]) -> Display:
    """`about` is what a person wants to know of each part when it is ready."""
    return LiveDisplay(console, about) if console.is_terminal else PlainDisplay(console, about)


def detail_of(part: Part, about: str) -> str:
    """What stands behind the state: an address, or why it is not ready."""
    if part.state is PartState.READY:
        history = f"(restarted {part.restarts}x, last: {part.why})" if part.restarts else ""
        return f"{about} {history}".strip()
    if part.state is PartState.WAITING and part.spec.needs:
        return f"for {', '.join(part.spec.needs)}"
    if part.state in (PartState.RESTARTING, PartState.FAILED, PartState.STARTING):
        return part.why
    return ""


class LiveDisplay:
    """A table that is redrawn in place."""

    def __init__(self, console: Console, about: Mapping[str, str]) -> None:
        self._about = about
        self._live = Live(console=console, refresh_per_second=8, transient=False)

    def open(self) -> None:
        self._live.start()

    def show(self, supervisor: Supervisor) -> None:
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, part in supervisor.parts.items():
            state = Text(part.state.value, style=_STYLES[part.state])
            table.add_row(name, state, Text(detail_of(part, self._about.get(name, ""))))
        self._live.update(table)

    def close(self) -> None:
        self._live.stop()


class PlainDisplay:
    """A line for each change of a part's state: for logs and pipes."""

    def __init__(self, console: Console, about: Mapping[str, str]) -> None:
        self._console = console
        self._about = about
        self._shown: dict[str, PartState] = {}

    def open(self) -> None:
        pass

    def show(self, supervisor: Supervisor) -> None:
        for name, part in supervisor.parts.items():
            if self._shown.get(name, PartState.WAITING) is part.state:
                continue
            self._shown[name] = part.state
            line = f"{name:<12} {part.state.value:<11} {detail_of(part, self._about.get(name, ''))}".rstrip()
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        pass
