from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from gpu_consumers.profiling.evidence import Operator
from gpu_consumers.profiling.run import Profile
from infra.profile_report import as_numbers, render
from tests.unit.gpu_consumers.profiling.test_picture import STEPS, profile_of


def with_operators() -> Profile:
    profile = profile_of(*STEPS)
    return replace(profile, found=replace(profile.found, operators=(Operator("aten::mm", 0.25, 0.5, 1200),)))


def printed(profile: Profile, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(render(profile, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_report_fits_and_no_number_is_cut(width: int) -> None:
    lines = printed(with_operators(), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert lines[0].strip() == "Compute-bound"
    assert [line.split()[:4] for line in lines if line.startswith("forward")] == [["forward", "45.0", "ms", "86.5%"]]
    assert "What to change" in text
    assert [line.split() for line in lines if line.startswith("aten::mm")] == [
        ["aten::mm", "250.0", "ms", "50.0%", "1,200"]
    ]
    assert ("from tokens to logits" in text) == (width >= 100)


def test_a_profile_without_operators_says_nothing_of_them() -> None:
    assert not any("Operators" in line for line in printed(profile_of(*STEPS), 100))


def test_numbers_are_json_with_their_units_in_their_names() -> None:
    numbers = json.loads(json.dumps(as_numbers(with_operators())))
    assert numbers["verdict"]["bound"] == "compute"
    assert sum(numbers["verdict"]["shares"].values()) == pytest.approx(1.0)
    assert sum(numbers["parts_seconds"].values()) == pytest.approx(numbers["seconds"])
    assert numbers["reference"]["bytes_per_second"] == 100e9
    assert numbers["load"] == {
        "concurrency": 16, "rate": None, "prompt_tokens": 128, "output_tokens": 64, "temperature": 1.0,
    }  # fmt: skip
    assert numbers["operators"] == [{"name": "aten::mm", "seconds": 0.25, "share": 0.5, "calls": 1200}]
    assert [point["label"] for point in numbers["points"]] == ["steps that decode", "steps that prefill"]


def test_without_a_reference_there_is_none_in_the_numbers() -> None:
    numbers = as_numbers(profile_of(*STEPS, known=False))
    assert (numbers["reference"], numbers["verdict"]["floor_share_of_forward"]) == (None, None)
