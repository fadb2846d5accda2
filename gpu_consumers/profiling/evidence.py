"""What the torch profiler saw: operators with their shares, and a Chrome trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_consumers.engines.parts import Around, Part
from gpu_consumers.errors import ProfileFileError

_PREFIX = "headrace."
"""Of the ranges that name an engine's parts in a trace."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of torch, or one kernel of the device. seconds: its own, without what it called. share: of all."""

    name: str
    seconds: float
    share: float
    calls: int


def observe(run: Callable[[Around], object], *, device: str, trace: Path | None, top: int) -> list[Operator]:
    """Run something under the torch profiler: its `top` operators, by the device's time where it is not the CPU.

    run: is given what an instrumented engine's parts are to run inside.
    trace: where a Chrome trace is written (about:tracing, Perfetto). Raises ProfileFileError where it can't be.
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    on_device = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]

    def around(part: Part) -> AbstractContextManager[object]:
        return record_function(_PREFIX + part)

    seen = profile(activities=activities, acc_events=True)
    with _quiet():
        seen.start()
    try:
        run(around)
    finally:
        with _quiet():
            seen.stop()
    if trace is not None:
        _export(seen, trace)
    return operators(seen.key_averages(), on_device=on_device, top=top)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing on standard error meanwhile: libkineto tells there, past Python, that it starts and stops."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def operators(averages: Any, *, on_device: bool, top: int) -> list[Operator]:
    """averages: of a torch profile, by operator."""
    own = [
        (str(entry.key), (entry.self_device_time_total if on_device else entry.self_cpu_time_total) / 1e6, entry.count)
        for entry in averages
        if not str(entry.key).startswith((_PREFIX, "ProfilerStep"))
    ]
    whole = sum(seconds for _, seconds, _ in own) or 1.0
    own.sort(key=lambda entry: -entry[1])
    return [Operator(name, seconds, seconds / whole, calls) for name, seconds, calls in own[:top] if seconds > 0]


def _export(seen: Any, trace: Path) -> None:
    try:
        trace.touch()  # torch would say no more than that it could not
        seen.export_chrome_trace(str(trace))
    except (OSError, RuntimeError) as error:
        raise ProfileFileError(f"the trace can't be written to {str(trace)!r}: {error}") from error
