"""The parts of a step as they were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpu_consumers.engines.parts import Part
from gpu_consumers.profiling.costs import StepNeeds


@dataclass(frozen=True, slots=True)
class StepMeasured:
    """Seconds of one turn of the loop by what they went into, and what they were for.

    wait: nothing was there to run. schedule: what runs next, and what it brought. build: the engine's own books, and
    the plan as tensors. forward: from tokens to logits. sample: from logits to tokens. write: text, events, bytes.
    slots: sequences that had one. waiting: sequences that had none.
    """

    wait: float = 0.0
    schedule: float = 0.0
    build: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    write: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    slots: int = 0
    waiting: int = 0
    needs: StepNeeds = field(default_factory=StepNeeds)

    @property
    def seconds(self) -> float:
        return self.wait + self.schedule + self.build + self.forward + self.sample + self.write


class PartTimer:
    """Seconds in the parts of an engine's step, for an instrumented engine (`gpu_consumers/engines/parts.py`).

    synchronize: waits for a device that works on its own, so that a part's work is counted in that part.
    """

    def __init__(self, clock: Callable[[], float], synchronize: Callable[[], None]) -> None:
        self._clock = clock
        self._synchronize = synchronize
        self._seconds: dict[Part, float] = {}

    @contextmanager
    def around(self, part: Part) -> Iterator[None]:
        self._synchronize()
        began = self._clock()
        yield
        self._synchronize()
        self._seconds[part] = self._seconds.get(part, 0.0) + self._clock() - began

    def taken(self) -> dict[Part, float]:
        """Since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds
