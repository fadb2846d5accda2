from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.generation import Model
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.profiling.costs import ModelCosts
from gpu_consumers.profiling.load import Load
from gpu_consumers.profiling.loop import LoadLoop, Until
from models.tokenizer import ByteTokenizer
from tests.tiny_model import make_tiny_model

MODEL = Model(ByteTokenizer(), frozenset({256}))
COSTS = ModelCosts(10, 1, 2, 3, 4)


class Clock:
    """A reading takes a millisecond, waiting as long as it says."""

    def __init__(self) -> None:
        self.now = 50.0
        self.waited = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited += seconds


def loop_of(engine: EchoEngine | TorchEngine, load: Load, clock: Clock | None = None) -> LoadLoop:
    clock = clock or Clock()
    return LoadLoop(engine, MODEL, load, clock=clock, wait=clock.wait, costs=COSTS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TorchEngine:
    directory = make_tiny_model(tmp_path_factory.mktemp("profile"))
    return load_torch_engine(directory, dtype="float32", slots=4, max_context_tokens=128)


def test_a_closed_loop_keeps_as_many_in_the_worker_as_it_was_told() -> None:
    loop = loop_of(EchoEngine(slots=4), Load(prompt_tokens=8, output_tokens=4, concurrency=6))
    steps = loop.run(Until(seconds=60, requests=20))
    loop.close()
    assert loop.finished >= 20
    assert {step.slots for step in steps} == {4}
    assert {step.waiting for step in steps[:2]} == {2}
    assert sum(step.wait for step in steps) == pytest.approx(0.001 * len(steps) * 2, abs=0.2)
    assert loop.written_bytes > 0


def test_an_open_loop_waits_where_nothing_is_there_and_never_past_its_end() -> None:
    clock = Clock()
    loop = loop_of(EchoEngine(slots=4), Load(prompt_tokens=8, output_tokens=4, rate=0.5), clock)
    steps = loop.run(Until(seconds=40))
    assert clock.waited == pytest.approx(sum(step.wait for step in steps), abs=1.0)
    assert clock.waited > 30
    assert clock.now < 50 + 42


def test_a_window_ends_by_steps_and_the_next_goes_on_from_there() -> None:
    loop = loop_of(EchoEngine(slots=4), Load(prompt_tokens=8, output_tokens=40, concurrency=4))
    assert len(loop.run(Until(seconds=60, steps=3))) == 3
    assert loop.finished == 0
    loop.run(Until(seconds=60, steps=100))
    assert loop.finished > 0


def test_an_engine_that_tells_its_parts_is_timed_by_them(tiny: TorchEngine) -> None:
    loop = loop_of(tiny, Load(prompt_tokens=8, output_tokens=4, concurrency=3))
    steps = loop.run(Until(seconds=60, steps=5))
    loop.close()
    assert all(step.forward > 0 and step.sample > 0 and step.build > 0 for step in steps)
    assert all(step.needs.flops > 0 for step in steps)
    assert steps[0].prompt_tokens > 0
    assert tiny.free_blocks == 8


def test_of_an_engine_that_tells_nothing_a_step_is_all_forward() -> None:
    loop = loop_of(EchoEngine(slots=4), Load(prompt_tokens=8, output_tokens=4, concurrency=3))
    [step] = loop.run(Until(seconds=60, steps=1))
    assert (step.build, step.sample) == (0.0, 0.0)
    assert step.forward > 0


def test_the_evidences_ranges_take_the_place_of_the_timer_and_go_again(tiny: TorchEngine) -> None:
    from contextlib import contextmanager

    entered = list[str]()

    @contextmanager
    def around(part: str) -> Iterator[None]:
        entered.append(part)
        yield

    loop = loop_of(tiny, Load(prompt_tokens=8, output_tokens=4, concurrency=3))
    loop.run(Until(seconds=60, steps=2), around)
    assert entered == ["build", "forward", "sample"] * 2
    loop.run(Until(seconds=60, steps=1))
    loop.close()
    assert len(entered) == 6


class Broken(EchoEngine):
    def __init__(self, execute: Callable[[StepPlan], StepResult]) -> None:
        super().__init__(slots=4)
        self._do = execute

    def execute(self, plan: StepPlan) -> StepResult:
        return self._do(plan)


def test_an_engine_that_cannot_run_the_load_is_a_clear_error() -> None:
    load = Load(prompt_tokens=8, output_tokens=4, concurrency=2)
    failing = Broken(lambda plan: StepResult(failures={plan.prefills[0].slot: "the device is on fire"}))
    with pytest.raises(EngineFailedError, match="can't run the load: the device is on fire"):
        loop_of(failing, load).run(Until(seconds=60))
    counter = itertools.count()
    dead = Broken(lambda plan: StepResult(tokens={0: [][next(counter)]}))
    with pytest.raises(EngineFailedError, match="engine echo failed with IndexError"):
        loop_of(dead, load).run(Until(seconds=60))
