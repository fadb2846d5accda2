from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpu_consumers.engines.parts import Around
from gpu_consumers.errors import ProfileFileError
from gpu_consumers.profiling.evidence import Operator, observe, operators


def multiply(around: Around) -> None:
    with around("forward"):
        matrix = torch.ones(256, 256)
        for _ in range(20):
            matrix = (matrix @ matrix).clamp_(0, 1)


def test_operators_come_with_their_shares_and_the_trace_has_the_engines_parts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    found = observe(multiply, device="cpu", trace=trace, top=3)
    assert len(found) == 3
    assert {"aten::mm", "aten::clamp_"} <= {operator.name for operator in found}
    assert [operator.share for operator in found] == sorted((o.share for o in found), reverse=True)
    assert {o.name: o.calls for o in found}["aten::mm"] == 20
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"headrace.forward", "aten::mm"} <= names
    assert capfd.readouterr().err == ""


def test_a_trace_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileFileError, match="can't be written to"):
        observe(multiply, device="cpu", trace=tmp_path / "gone" / "trace.json", top=3)


def test_on_a_device_its_own_time_counts() -> None:
    averages = [
        SimpleNamespace(key="aten::mm", self_cpu_time_total=9e6, self_device_time_total=0.0, count=4),
        SimpleNamespace(key="gemm_kernel", self_cpu_time_total=0.0, self_device_time_total=3e6, count=2),
        SimpleNamespace(key="copy_kernel", self_cpu_time_total=0.0, self_device_time_total=1e6, count=1),
        SimpleNamespace(key="headrace.forward", self_cpu_time_total=5e6, self_device_time_total=8e6, count=1),
    ]
    assert operators(averages, on_device=True, top=5) == [
        Operator("gemm_kernel", 3.0, 0.75, 2),
        Operator("copy_kernel", 1.0, 0.25, 1),
    ]
    assert operators(averages, on_device=False, top=1) == [Operator("aten::mm", 9.0, 1.0, 4)]
