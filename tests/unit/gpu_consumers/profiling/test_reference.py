from __future__ import annotations

import time

import pytest

from gpu_consumers.profiling.reference import measure_reference, synchronizer


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bare_machine_has_a_bandwidth_and_a_speed(dtype: str) -> None:
    reference = measure_reference("cpu", dtype, seconds=0.0, clock=time.monotonic)
    assert reference.bytes_per_second > 1e8
    assert reference.flops > 1e8
    assert reference.ridge == reference.flops / reference.bytes_per_second
    assert reference.device.startswith("CPU, ")
    assert reference.threads >= 1


def test_the_best_run_counts_and_there_are_three_at_least() -> None:
    """A clock that ticks once a reading makes every run one second long."""
    ticks = iter(range(10_000))
    reference = measure_reference("cpu", "float32", seconds=0.0, clock=lambda: float(next(ticks)))
    assert reference.flops == 2.0 * 1024**3
    assert reference.bytes_per_second == 2 * (256 << 20)


def test_there_is_nothing_to_wait_for_on_a_cpu() -> None:
    synchronizer("cpu")()
