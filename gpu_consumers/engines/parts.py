"""The parts of a step, for those who ask where its time goes: a profiler, never a worker in service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, runtime_checkable

Part = Literal["build", "forward", "sample"]
"""build: the plan as tensors, and room for its keys and values. forward: from tokens to logits. sample: from logits to
token ids. What an engine does besides (slots, books) is in none of them."""

Around = Callable[[Part], AbstractContextManager[object]]
"""Entered before a part and left after it. What it does in between is its own."""


@runtime_checkable
class Instrumented(Protocol):
    """An engine that tells when a part of its step begins and ends."""

    def instrument(self, around: Around) -> None:
        """From now on every part runs inside `around(part)`; `uninstrumented` ends that."""
        ...


def uninstrumented(part: Part) -> AbstractContextManager[object]:
    """Nothing is told to anybody."""
    return _NOTHING


_NOTHING = nullcontext()  # one for all: it keeps nothing
