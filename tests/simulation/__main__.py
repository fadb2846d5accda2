"""Every trace through every scheduler: `python -m tests.simulation`."""

from __future__ import annotations

from rich.console import Console

from tests.simulation.arrivals import FLOOD, traces
from tests.simulation.report import figures, table
from tests.simulation.simulator import SCHEDULERS, simulate


def main() -> None:
    console = Console(width=160)
    for trace in traces():
        found = {name: figures(trace, simulate(trace, make)) for name, make in SCHEDULERS.items()}
        if FLOOD in trace.tenants:
            found["ours, no flood"] = figures(trace, simulate(trace.without(FLOOD)))
        console.print(table(trace, found))
        console.print()


if __name__ == "__main__":
    main()
