"""The LoRA adapters that an engine holds, each in a place of its own, and which of them each slot answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.adapter_gate import PutWeights
from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.batch import StepBatch
from gpu_consumers.engines.torch.lora import LoraAdapter, read_lora
from gpu_consumers.engines.torch.lora_layout import LoraLayout, padded_rank
from gpu_consumers.engines.torch.lora_step import LoraStep
from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.errors import AdapterUnavailableError


class LoraMemory:
    """On a CPU an adapter stays where it was read to, so that places that hold none take nothing. On another device
    the memory of all places is taken at once: what is free behind that is for keys and values.

    `read` may be called on any thread, all else on the engine's own.
    """

    def __init__(
        self,
        layout: LoraLayout,
        *,
        places: int,
        max_rank: int,
        layers_path: str,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Kernels | None = None,
    ) -> None:
        """max_rank: the highest rank of an adapter that a place holds. layers_path: see `read_lora`."""
        self.places: Final = places
        self._layout = layout
        self._max_rank = max_rank
        self._layers_path = layers_path
        self._dtype = dtype
        self._kernels = kernels if layout.has_kernels else None
        self._memory: Tensor | None = None
        if device.type != "cpu" and places:
            numbers = layout.numbers(padded_rank(max_rank))
            self._memory = torch.empty(places, numbers, dtype=dtype, device=device)
        self._key_at: dict[int, str] = {}  # by place
        self._adapters: dict[str, LoraAdapter] = {}  # by key
        self._of_slot: dict[int, LoraAdapter] = {}

    def read(self, key: str, location: str) -> PutWeights:
        """See `AdapterHost.read_adapter`."""
        adapter = read_lora(
            Path(location), self._layout, layers_path=self._layers_path, dtype=self._dtype, max_rank=self._max_rank
        )
        if self._memory is not None:
            adapter = replace(adapter, weights=adapter.weights.pin_memory())
        elif self._kernels is not None:
            adapter = replace(adapter, weights=self._layout.for_kernels(adapter.weights, adapter.rank))
        return partial(self._put, key, adapter)

    def begin(self, slot: int, key: str | None) -> str | None:
        """The slot's sequence answers with this adapter; why it can't, if it can't."""
        if key is None:
            return None
        adapter = self._adapters.get(key)
        if adapter is None:
            return f"the adapter {key} is in none of this engine's {self.places} places"
        self._of_slot[slot] = adapter
        return None

    def release(self, slot: int) -> None:
        self._of_slot.pop(slot, None)

    def together(self, work: StepWork) -> StepWork:
        """The same, with the decodes of one adapter side by side: they are computed together."""
        if not self._of_slot:
            return work
        return replace(work, decodes=tuple(sorted(work.decodes, key=lambda decode: id(self._of_slot.get(decode.slot)))))

    def on(self, batch: StepBatch, work: StepWork) -> StepBatch:
        """The batch of this work with what its adapters add."""
        if not self._of_slot:
            return batch
        slots = [decode.slot for decode in work.decodes]
        for chunk in work.prefills:
            slots.extend([chunk.slot] * len(chunk.token_ids))
        lora = self._step(slots)
        is_whole = slots == list(batch.output_slots)  # decodes alone
        return replace(batch, lora=lora, output_lora=lora if is_whole else self._step(batch.output_slots))

    def adapts(self, work: StepWork) -> bool:
        """Whether anybody in this work answers with an adapter."""
        return any(part.slot in self._of_slot for part in work.decodes) or any(
            part.slot in self._of_slot for part in work.prefills
        )

    def _step(self, slots: Sequence[int]) -> LoraStep | None:
        """slots: whose each row is."""
        adapters = [self._of_slot.get(slot) for slot in slots]
        return LoraStep(self._layout, adapters, self._kernels) if any(adapters) else None

    def _put(self, key: str, adapter: LoraAdapter, place: int) -> None:
        self._adapters.pop(self._key_at.pop(place, ""), None)
        if self._memory is not None:
            weights = self._memory[place, : len(adapter.weights)]
            try:
                weights.copy_(adapter.weights)
            except RuntimeError as error:
                raise AdapterUnavailableError(f"it can't be copied to the device: {error}") from error
            adapter = replace(adapter, weights=weights)
        self._key_at[place], self._adapters[key] = key, adapter
