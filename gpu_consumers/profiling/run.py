"""One profile from beginning to end: reference, load, verdict, evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpu_consumers.engine import Engine
from gpu_consumers.errors import EngineConfigurationError
from gpu_consumers.generation import Model
from gpu_consumers.profiling.advice import Advice, Finding, Setup, advice, reasons
from gpu_consumers.profiling.costs import ModelCosts
from gpu_consumers.profiling.evidence import Operator, observe
from gpu_consumers.profiling.load import Load, why_not_loadable
from gpu_consumers.profiling.loop import LoadLoop, Until
from gpu_consumers.profiling.reference import measure_reference, synchronizer
from gpu_consumers.profiling.roofline import Point, points
from gpu_consumers.profiling.summary import summarize
from gpu_consumers.profiling.verdict import judge

TOP_OPERATORS = 8
REFERENCE_SECONDS = 1.5
_EVIDENCE = Until(seconds=3.0, steps=16)


@dataclass(frozen=True, slots=True)
class Options:
    """device: of the engine. until: when the measured window ends. trace: where a Chrome trace goes, if anywhere.
    observed: whether the torch profiler is asked (an engine that runs no torch operators here gives it nothing)."""

    device: str
    until: Until
    trace: Path | None = None
    observed: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """All that was found. model: what was profiled, as a person named it."""

    model: str
    found: Finding
    reasons: tuple[str, ...]
    advice: tuple[Advice, ...]
    points: tuple[Point, ...]
    finished_requests: int


def run_profile(
    engine: Engine,
    model: Model,
    load: Load,
    setup: Setup,
    options: Options,
    *,
    name: str,
    costs: ModelCosts | None,
    clock: Callable[[], float],
    wait: Callable[[float], object],
    told: Callable[[str], None] = lambda what: None,
) -> Profile:
    """The engine must be warm. told: hears what is being done, for people who wait.

    Raises GpuConsumerError: EngineConfigurationError for a load that does not fit or a window without a step,
    EngineFailedError, ProfileFileError.
    """
    if (why := why_not_loadable(load, engine.info)) is not None:
        raise EngineConfigurationError(why)
    reference = None
    if costs is not None:
        told("measuring the bare machine")
        reference = measure_reference(options.device, setup.dtype, seconds=REFERENCE_SECONDS, clock=clock)
    loop = LoadLoop(engine, model, load, clock=clock, wait=wait, costs=costs, synchronize=synchronizer(options.device))
    told(f"running the load for up to {options.until.seconds:g} s")
    steps = loop.run(options.until)
    busy = [step for step in steps if step.slots or step.output_tokens]
    if not busy:
        raise EngineConfigurationError("no request came while the load ran: raise --rate or --seconds")
    finished = loop.finished
    operators: list[Operator] = []
    if options.observed:
        told("asking the torch profiler")
        operators = observe(
            lambda around: loop.run(_EVIDENCE, around), device=options.device, trace=options.trace, top=TOP_OPERATORS
        )
    loop.close()
    found = Finding(setup, load, summarize(steps), judge(steps, reference), reference, costs, tuple(operators))
    return Profile(name, found, tuple(reasons(found)), tuple(advice(found)), tuple(points(steps)), finished)
