"""From a verdict to what to change, by the names of the settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_consumers.profiling.costs import ModelCosts
from gpu_consumers.profiling.evidence import Operator
from gpu_consumers.profiling.load import Load
from gpu_consumers.profiling.reference import Reference
from gpu_consumers.profiling.summary import Summary
from gpu_consumers.profiling.units import milliseconds, operations, size
from gpu_consumers.profiling.verdict import Bound, Verdict

_FULL: Final = 0.9  # of the slots
_FEW_STEPS: Final = 20
_BUSY: Final = 0.5  # cores of others that are worth a word
_PRODUCTS: Final = ("linear", "mm", "matmul", "gemm", "cutlass", "nvjet")  # in names of operators and kernels


@dataclass(frozen=True, slots=True)
class Setup:
    """How the engine runs. slots, dtype, threads: as set. on_cpu: where. quantized: weights are int8 already.
    cores: of the machine. busy_before: its load average before the load began."""

    engine: str
    slots: int
    dtype: str
    on_cpu: bool
    threads: int
    quantized: bool = False
    cores: int = 1
    busy_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured, as input of the advice."""

    setup: Setup
    load: Load
    summary: Summary
    verdict: Verdict
    reference: Reference | None
    costs: ModelCosts | None
    operators: tuple[Operator, ...] = ()

    @property
    def has_room(self) -> bool:
        """Slots were free, and nobody was there for them."""
        return self.summary.mean_slots < _FULL * self.setup.slots and self.summary.mean_waiting < 1

    @property
    def is_full(self) -> bool:
        return self.summary.mean_slots >= _FULL * self.setup.slots

    @property
    def products_share(self) -> float:
        """Of the operators' time, in matrix products: of those operators that are told."""
        return sum(o.share for o in self.operators if any(word in o.name for word in _PRODUCTS))


@dataclass(frozen=True, slots=True)
class Advice:
    """do: a setting, or something to do. why: with the numbers that speak for it."""

    do: str
    why: str


def reasons(found: Finding) -> list[str]:
    """Why the verdict is what it is, a sentence each."""
    summary, verdict = found.summary, found.verdict
    shares = ", ".join(f"{bound} {share:.0%}" for bound, share in _ordered(verdict) if share >= 0.005)
    told = [f"Time by what would shorten it: {shares}."]
    if found.reference is not None and verdict.floor is not None:
        told.append(
            f"Of the forward passes {verdict.floor:.0%} is explained by the bare machine: a step in the mean moves "
            f"{size(summary.bytes / summary.steps)} ({milliseconds(verdict.memory_seconds / summary.steps)} at "
            f"{size(found.reference.bytes_per_second)}/s) and takes {operations(summary.flops / summary.steps)} "
            f"({milliseconds(verdict.compute_seconds / summary.steps)} at {operations(found.reference.flops)}/s)."
        )
    told.append(
        f"{summary.mean_slots:.1f} of {found.setup.slots} slots were in use, and {summary.mean_waiting:.1f} requests "
        "waited behind them."
    )
    if summary.steps < _FEW_STEPS:
        told.append(
            f"No more than {summary.steps} steps fell into {summary.seconds:.1f} s: a longer --seconds tells more."
        )
    return told


def advice(found: Finding) -> list[Advice]:
    """What to change, the most promising first; that of a near cause follows that of the first."""
    by_bound = {
        Bound.INPUT: _more_input,
        Bound.SCHEDULER: _less_scheduling,
        Bound.SAMPLING: _less_sampling,
        Bound.MEMORY: _less_memory,
        Bound.COMPUTE: _less_compute,
        Bound.OVERHEAD: _less_overhead,
        Bound.ENGINE: _less_engine,
    }
    told: dict[str, Advice] = {}
    for bound in (found.verdict.bound, found.verdict.near):
        if bound is not None:
            for item in by_bound[bound](found):
                told.setdefault(item.do, item)
    return list(told.values())


def _more_input(found: Finding) -> Iterator[Advice]:
    idle = found.verdict.shares[Bound.INPUT]
    yield Advice("send it more, or run fewer workers", f"it waited for requests {idle:.0%} of the time")
    yield Advice(
        "HEADRACE_WORK_PARTITIONS",
        "if others of the deployment are busy meanwhile: workers share partitions, and one without any gets no work",
    )


def _less_memory(found: Finding) -> Iterator[Advice]:
    setup, summary, costs, reference = found.setup, found.summary, found.costs, found.reference
    kv_share = summary.kv_bytes / summary.bytes if summary.bytes else 0.0
    if found.has_room:
        yield Advice(
            "send it more at once, or run fewer workers",
            f"a step reads all weights whether it runs 1 sequence or {setup.slots}, and {summary.mean_slots:.1f} were "
            "in it",
        )
    elif found.is_full and kv_share < 0.5:
        yield Advice(
            f"HEADRACE_SLOTS={2 * setup.slots}",
            f"{1 - kv_share:.0%} of what a step reads are weights, which more sequences would share; a floor of "
            f"{1 + kv_share:.2f} times the time for twice the tokens",
        )
    if costs is not None and reference is not None and not setup.quantized and costs.weight_bytes > 1:
        now = costs.weights_bytes / reference.bytes_per_second
        then = now / costs.weight_bytes
        yield Advice(
            "int8 weights" if costs.weight_bytes <= 2 else "HEADRACE_DTYPE=bfloat16, or int8 weights",
            f"reading the weights takes {milliseconds(now)} of every step now, and {milliseconds(then)} in int8",
        )
    if kv_share >= 0.5:
        yield Advice(
            "more workers, or shorter contexts",
            f"{kv_share:.0%} of what a step moves are keys and values, and every sequence has its own",
        )
    if not setup.on_cpu:
        yield Advice("a device with more memory bandwidth", "its arithmetic is not what is missing")


def _less_compute(found: Finding) -> Iterator[Advice]:
    setup, summary = found.setup, found.summary
    prompt_share = summary.prompt_tokens / max(1, summary.prompt_tokens + summary.output_tokens)
    yield Advice(
        "more workers", "the device computes at what it can, and more sequences at once would only wait longer"
    )
    if setup.dtype == "float32":
        yield Advice("HEADRACE_DTYPE=bfloat16", "float32 has a fraction of the arithmetic of bfloat16 on most devices")
    if prompt_share > 0.5:
        yield Advice(
            "HEADRACE_PREFIX_CACHE_MIB",
            f"{prompt_share:.0%} of the tokens were prompt: what begins alike need not be run again",
        )
        yield Advice(
            "a smaller HEADRACE_MAX_STEP_TOKENS",
            "if answers stall while others prefill: prompts are run in smaller chunks, at some cost of throughput",
        )


def _less_overhead(found: Finding) -> Iterator[Advice]:
    setup, summary = found.setup, found.summary
    if setup.on_cpu and setup.busy_before > _BUSY:
        yield Advice(
            "a machine of its own",
            f"the load average was {setup.busy_before:.1f} on {setup.cores} cores before the load began, and all "
            "threads wait at every operation for one that is held up",
        )
    if found.has_room:
        yield Advice(
            "send it more at once",
            f"what a step costs as such is shared by its sequences, and {summary.mean_slots:.1f} of {setup.slots} were "
            "in it",
        )
    elif found.is_full:
        yield Advice(
            f"HEADRACE_SLOTS={2 * setup.slots}", "what a step costs as such would be shared by twice the sequences"
        )
    if setup.on_cpu and setup.engine == "torch":
        yield Advice("HEADRACE_THREADS", f"{setup.threads} now; the best is one for each physical core that is free")
    yield from _by_operators(found)


def _less_engine(found: Finding) -> Iterator[Advice]:
    if found.setup.engine == "echo":
        yield Advice("HEADRACE_ECHO_TOKENS_PER_SECOND", "the echo keeps this pace, and waits in its steps to keep it")
    else:
        yield Advice("the engine's own profile", "the time goes into the engine, and what its steps need is not known")


def _by_operators(found: Finding) -> Iterator[Advice]:
    if not found.operators:
        return
    share, top = found.products_share, found.operators[0].name
    if share >= 0.5:
        yield Advice(
            "more tokens in a step",
            f"matrix products are {share:.0%} of the operators' time and stay below the roof: their kernels are slow "
            "with few rows, or held up",
        )
    else:
        yield Advice(
            "fewer small operations",
            f"matrix products are only {share:.0%} of the operators' time, first is {top}: "
            + (
                "a g++ on the machine lets compiled kernels do most of the rest"
                if found.setup.on_cpu
                else "kernels that are launched one by one"
            ),
        )


def _less_scheduling(found: Finding) -> Iterator[Advice]:
    parts = {part: found.summary.parts[part] for part in ("schedule", "build", "write")}
    largest = max(parts, key=lambda part: parts[part])
    what = {"schedule": "the scheduler", "build": "making tensors of plans", "write": "text and events"}[largest]
    yield Advice(
        "more workers on the device, each with fewer slots",
        f"{what} takes most of it ({parts[largest] / found.summary.seconds:.0%} of all time): Python, which one "
        "process runs on one core",
    )
    if largest == "schedule":
        yield Advice(
            "a larger HEADRACE_MAX_STEP_TOKENS", "prompts then take fewer steps, and each is planned at the same cost"
        )


def _less_sampling(found: Finding) -> Iterator[Advice]:
    yield Advice(
        "requests without top_p, min_p, penalties or a JSON schema, or with temperature 0",
        f"drawing takes {found.verdict.shares[Bound.SAMPLING]:.0%} of the time: it is work for each sequence over the "
        "whole vocabulary",
    )


def _ordered(verdict: Verdict) -> list[tuple[Bound, float]]:
    return sorted(verdict.shares.items(), key=lambda item: -item[1])
