"""What an engine that runs LoRA adapters offers beside `Engine`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gpu_consumers.adapter_gate import PutWeights


@runtime_checkable
class AdapterHost(Protocol):
    """An engine with places for adapters. A plan names one by its key, which must lie in a place by then."""

    @property
    def adapter_places(self) -> int:
        """How many adapters it holds at once; 0: it runs none."""
        ...

    def read_adapter(self, key: str, location: str) -> PutWeights:
        """Read and check the weights, on any thread: this may take long, and holds up no step.

        What it gives is called once at most, on the engine's own thread between two steps, with the place; whatever
        was there is gone then. Raises AdapterUnavailableError, as may the call.
        """
        ...
