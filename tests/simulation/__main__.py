"""Arrival traces through the real scheduler, and through first come first served and round robin, in virtual time.

For each trace a table: service differences, time to first token and deadlines met, by scheduler. A step costs what it
took on two CPU cores, so the figures are the same on every machine. All of it takes some ten seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from tests.simulation.arrivals import FLOOD, traces
from tests.simulation.report import figures, table
from tests.simulation.simulator import SCHEDULERS, simulate


def main(arguments: Sequence[str]) -> int:
    every = traces()
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        epilog="traces:\n" + "\n".join(f"  {trace.name:16} {trace.about}" for trace in every),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="WORD", help="the traces whose name holds this word")
    only: str = parser.parse_args(arguments).only
    chosen = [trace for trace in every if only in trace.name]
    if not chosen:
        parser.error(f"no trace has {only!r} in its name; there are {', '.join(trace.name for trace in every)}")
    console = Console(width=160)
    for trace in chosen:
        found = {name: figures(trace, simulate(trace, make)) for name, make in SCHEDULERS.items()}
        if FLOOD in trace.tenants:
            found["ours, no flood"] = figures(trace, simulate(trace.without(FLOOD)))
        console.print(table(trace, found))
        console.print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
