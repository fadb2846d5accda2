from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.parts import Instrumented, Part, uninstrumented
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan


def test_an_instrumented_engine_tells_the_parts_of_each_step_in_order(model_directory: Callable[[str], Path]) -> None:
    engine = load_torch_engine(model_directory("grouped"), dtype="float32", slots=2, max_context_tokens=64)
    told: list[str] = []

    @contextmanager
    def around(part: Part) -> Iterator[None]:
        told.append(f"{part} begins")
        yield
        told.append(f"{part} ends")

    engine.instrument(around)
    admitted = (Admission(0, SamplingParams(), 20),)
    engine.execute(StepPlan(admitted=admitted, prefills=(PrefillChunk(0, (1, 2), 0, False),)))
    assert told == ["build begins", "build ends", "forward begins", "forward ends"], "no token is due yet"
    told.clear()
    result = engine.execute(StepPlan(prefills=(PrefillChunk(0, (3,), 2, True),)))
    assert told == [f"{part} {what}" for part in ("build", "forward", "sample") for what in ("begins", "ends")]
    told.clear()
    engine.instrument(uninstrumented)
    engine.execute(StepPlan(decodes=(Decode(0, result.tokens[0], 3),)))
    assert told == []


def test_the_torch_engine_can_be_instrumented_and_the_echo_engine_can_not(
    model_directory: Callable[[str], Path],
) -> None:
    assert isinstance(load_torch_engine(model_directory("grouped"), dtype="float32", slots=1), Instrumented)
    assert not isinstance(EchoEngine(), Instrumented)
