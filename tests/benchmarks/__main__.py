"""`make bench`: one table of what we do against something bare, each pair measured in one run.

Every module here with a `run() -> list[BenchRow]` takes part; `ONLY=name` takes the modules and rows whose name holds
the word. The rows also go to build/bench.json. A missed bar is shown, not hidden: it does not fail the run, because
these machines are noisy; the change that causes one has to explain it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.table import Table

import tests.benchmarks
from tests.benchmarks.row import BenchRow

RESULT = Path("build/bench.json")


def discover() -> dict[str, Callable[[], list[BenchRow]]]:
    """Every benchmark module's `run`, by module name."""
    found = {}
    for module_info in pkgutil.iter_modules(tests.benchmarks.__path__):
        if module_info.name in {"__main__", "row"}:
            continue
        module = importlib.import_module(f"tests.benchmarks.{module_info.name}")
        if hasattr(module, "run"):
            found[module_info.name] = cast(Callable[[], list[BenchRow]], module.run)
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", default="", help="run the modules and rows whose name holds this word")
    only: str = parser.parse_args(arguments).only
    modules = discover()
    chosen = {name: run for name, run in modules.items() if only in name} or modules
    console = Console(width=120)
    rows: list[BenchRow] = []
    for name, run in chosen.items():
        console.print(f"[dim]{name} ...[/]", highlight=False)
        started = time.monotonic()
        try:
            measured = run()
            if not measured:
                console.print(f"[dim]{name} needs a device that is not here[/]", highlight=False)
            rows += [row for row in measured if only in name or only in row.name]
        except Exception as error:
            console.print(f"[red]{name} could not run: {type(error).__name__}: {error}[/]", highlight=False)
            rows.append(BenchRow(name=name, ours=float("nan"), baseline=float("nan"), unit="could not run", bar=0.0))
        console.print(f"[dim]{name} took {time.monotonic() - started:.0f} s[/]", highlight=False)
    if not rows and chosen is modules:
        console.print(f"no benchmark has {only!r} in its name; there are {', '.join(modules)}")
        return 2
    console.print(render(rows))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([as_json(row) for row in rows], indent=2) + "\n")
    load = os.getloadavg()[0]
    console.print(f"[dim]{os.cpu_count()} cores, load {load:.1f}; rows in {RESULT}[/]", highlight=False)
    return 0


def render(rows: Sequence[BenchRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading, side in (("name", "left"), ("ours", "right"), ("baseline", "right"), ("unit", "left")):
        table.add_column(heading, justify="left" if side == "left" else "right", no_wrap=True)
    for heading in ("ratio", "bar", "met"):
        table.add_column(heading, justify="right")
    for row in rows:
        sign = "≥" if row.higher_is_better else "≤"
        met = "[green]yes[/]" if row.met else "[red]no[/]"
        table.add_row(
            row.name, f"{row.ours:,.4g}", f"{row.baseline:,.4g}", row.unit, f"{row.ratio:.2f}x", f"{sign} {row.bar:g}x",
            met,
        )  # fmt: skip
    return table


def as_json(row: BenchRow) -> dict[str, object]:
    """The row's fields, and what follows from them."""
    return {
        "name": row.name, "ours": row.ours, "baseline": row.baseline, "unit": row.unit, "ratio": row.ratio,
        "bar": row.bar, "higher_is_better": row.higher_is_better, "met": row.met,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
