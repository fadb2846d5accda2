from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from gpu_consumers.profiling.advice import advice, reasons
from gpu_consumers.profiling.picture import svg
from gpu_consumers.profiling.roofline import points
from gpu_consumers.profiling.run import Profile
from gpu_consumers.profiling.step import StepMeasured
from tests.unit.gpu_consumers.profiling.numbers import finding, step

STEPS = (
    step(wait=1, schedule=2, build=2, forward=40, sample=6, write=3, memory=20, compute=4),
    step(forward=50, memory=5, compute=40, prompt_tokens=300),
)


def profile_of(*steps: StepMeasured, known: bool = True, model: str = "chat@v1") -> Profile:
    found = finding(*steps, known=known)
    return Profile(model, found, tuple(reasons(found)), tuple(advice(found)), tuple(points(steps)), 7)


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]


def test_the_picture_says_the_verdict_the_parts_the_roof_and_what_to_change() -> None:
    said = texts(svg(profile_of(*STEPS)))
    assert said[0] == "Compute-bound"
    assert "chat@v1 on the torch engine, bfloat16, CPU, 2 threads, 16 slots" in said
    for text in ("forward 86.5%", "compute 37.4%", "memory, 100 GB/s", "compute, 1 TFLOP/s", "more workers"):
        assert text in said
    assert "steps that decode: 50% of the roof" in said
    assert "steps that prefill: 80% of the roof" in said


def test_bars_fill_their_width_to_scale() -> None:
    picture = ElementTree.fromstring(svg(profile_of(*STEPS)))
    bars = [e for e in picture.iter() if e.tag.endswith("rect") and e.get("height") == "26"]
    for y in ("104", "198"):
        widths = [float(bar.get("width", 0)) for bar in bars if bar.get("y") == y]
        assert sum(widths) == pytest.approx(960, abs=2)


def test_nothing_lies_outside_of_the_picture() -> None:
    picture = ElementTree.fromstring(svg(profile_of(*STEPS)))
    height = float(picture.get("height", 0))
    for element in picture.iter():
        assert 0 <= float(element.get("x", 0)) <= 1040
        assert 0 <= float(element.get("y", 0)) <= height


def test_without_a_reference_the_picture_says_why_there_is_no_roof() -> None:
    said = texts(svg(profile_of(step(forward=10), known=False)))
    assert said[0] == "Engine-bound"
    assert any("no roof to hold them against" in text for text in said)


def test_a_name_with_markup_in_it_stays_text() -> None:
    assert any(text.startswith("<b>&") for text in texts(svg(profile_of(*STEPS, model="<b>&"))))
