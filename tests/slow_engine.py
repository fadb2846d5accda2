"""A torch engine whose steps take their time, so that a test can come between them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpu_consumers.engines.torch import TorchEngine
from gpu_consumers.plan import StepPlan, StepResult


@contextmanager
def slow_steps(seconds: float) -> Iterator[None]:
    """Within it each step of every torch engine of this process takes so much longer."""
    whole = TorchEngine.execute

    def slowly(engine: TorchEngine, plan: StepPlan) -> StepResult:
        threading.Event().wait(seconds)
        return whole(engine, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchEngine, "execute", slowly)
        yield
