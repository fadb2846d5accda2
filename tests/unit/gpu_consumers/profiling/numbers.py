"""Measured numbers for tests of what is made of them: a machine of 100 GB/s and 1 TFLOP/s."""

from __future__ import annotations

from gpu_consumers.profiling.advice import Finding, Setup
from gpu_consumers.profiling.costs import ModelCosts, StepNeeds
from gpu_consumers.profiling.evidence import Operator
from gpu_consumers.profiling.load import Load
from gpu_consumers.profiling.reference import Reference
from gpu_consumers.profiling.step import StepMeasured
from gpu_consumers.profiling.summary import summarize
from gpu_consumers.profiling.verdict import judge

MACHINE = Reference(bytes_per_second=100e9, flops=1e12, device="CPU, 2 threads", threads=2)
COSTS = ModelCosts(
    body_weights=90_000_000, head_weights=10_000_000, weight_bytes=2, kv_bytes_per_token=1000, attention_flops=4000
)


def step(
    *,
    wait: float = 0.0,
    schedule: float = 0.0,
    build: float = 0.0,
    forward: float = 0.0,
    sample: float = 0.0,
    write: float = 0.0,
    memory: float = 0.0,
    compute: float = 0.0,
    kv_share: float = 0.0,
    slots: int = 16,
    prompt_tokens: int = 0,
) -> StepMeasured:
    """Milliseconds all; memory and compute: of the floors on MACHINE."""
    size = memory * 1e-3 * MACHINE.bytes_per_second
    needs = StepNeeds(bytes=size, kv_bytes=kv_share * size, flops=compute * 1e-3 * MACHINE.flops)
    return StepMeasured(
        wait=wait / 1e3, schedule=schedule / 1e3, build=build / 1e3, forward=forward / 1e3, sample=sample / 1e3,
        write=write / 1e3, prompt_tokens=prompt_tokens, output_tokens=slots, slots=slots, needs=needs,
    )  # fmt: skip


def finding(
    *steps: StepMeasured,
    setup: Setup | None = None,
    known: bool = True,
    operators: tuple[Operator, ...] = (),
) -> Finding:
    reference = MACHINE if known else None
    setup = setup or Setup("torch", slots=16, dtype="bfloat16", on_cpu=True, threads=2, cores=2)
    return Finding(
        setup, Load(), summarize(steps), judge(steps, reference), reference, COSTS if known else None, operators
    )  # fmt: skip
