"""Decode steps as CUDA graphs: recorded once for 1, 2, 4, ... sequences, and replayed with one launch.

A decode of a small model is bound by the launches of its kernels, not by them. A graph has fixed shapes and reads from
fixed memory, so a step is filled up with rows of nobody to the next recorded size; they write to a block that nobody
is given, and their logits are cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from gpu_consumers.engines.torch.batch import StepBatch
from gpu_consumers.engines.torch.flash import PagedIndex
from gpu_consumers.engines.torch.kv_memory import KvMemory
from gpu_consumers.engines.torch.model import CausalModel
from gpu_consumers.plan import Decode

Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Records what a function does on the device, and gives one that does it again and returns the same memory."""

_WARM_UP_RUNS: Final = 3  # what libraries set up at their first calls must not be recorded


class DecodeGraphs:
    """Owned by the engine. Recorded in order of size, the largest first, whose memory the others share."""

    def __init__(
        self, model: CausalModel, memory: KvMemory, *, slots: int, max_context_tokens: int, capture: Capture
    ) -> None:
        columns = memory.layout.blocks_for(max_context_tokens)
        sizes = sorted({*(1 << power for power in range(slots.bit_length())), slots}, reverse=True)
        self._graphs = {size: _Graph(model, memory, size, columns, max_context_tokens, capture) for size in sizes}
        self._sizes = sizes[::-1]

    def forward(self, decodes: Sequence[Decode]) -> Tensor:
        """Logits [decodes, vocabulary] of a step that decodes only, valid until the next. The memory has room."""
        size = next(size for size in self._sizes if size >= len(decodes))
        return self._graphs[size].forward(decodes)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """One recorded step's input, [size] each and [size, columns]: parts of `whole`, which is filled by one copy."""

    whole: Tensor
    token_ids: Tensor
    positions: Tensor
    places: Tensor
    lengths: Tensor
    blocks: Tensor


class _Graph:
    def __init__(
        self, model: CausalModel, memory: KvMemory, size: int, columns: int, max_context_tokens: int, capture: Capture
    ) -> None:
        self._memory, self._size, self._columns = memory, size, columns
        device = memory.layers[0].rows.device
        self._staging = torch.empty(size * (4 + columns), dtype=torch.int32, pin_memory=device.type == "cuda")
        self._inputs = inputs = _inputs(self._staging.to(device), size, columns)
        self._fill(())
        starts = torch.arange(size + 1, dtype=torch.int32, device=device)
        rows = torch.arange(size, device=device)

        def step() -> Tensor:
            batch = StepBatch(
                token_ids=inputs.token_ids,
                positions=inputs.positions,
                places=inputs.places,
                kv_rows=memory.rows_of(inputs.places.long()),
                decodes=None,
                chunks=(),
                output_rows=rows,
                output_slots=tuple(range(size)),
                paged=PagedIndex(starts, inputs.lengths, inputs.blocks, 1, max_context_tokens),
            )
            logits = model.forward(batch, memory)
            assert logits is not None, "a rank without logits records no graphs"
            return logits

        self._replay = capture(step)

    def forward(self, decodes: Sequence[Decode]) -> Tensor:
        self._fill(decodes)
        return self._replay()[: len(decodes)]

    def _fill(self, decodes: Sequence[Decode]) -> None:
        """All of it each time: a row that was somebody's in the step before must not write to his blocks again.

        The step before has been waited for, since its tokens were sampled: the staging memory is free.
        """
        filling = self._size - len(decodes)
        held = [self._memory.blocks_of(decode.slot) for decode in decodes]
        places = [self._memory.place(decode.slot, decode.position) for decode in decodes]
        numbers = [
            *(decode.token_id for decode in decodes), *[0] * filling,
            *(decode.position for decode in decodes), *[0] * filling,
            *places, *[self._memory.spare_place] * filling,
            *(decode.position + 1 for decode in decodes), *[1] * filling,
        ]  # fmt: skip
        for blocks in held:
            numbers += blocks + [0] * (self._columns - len(blocks))
        numbers += [self._memory.blocks] * (filling * self._columns)
        self._staging.copy_(torch.tensor(numbers, dtype=torch.int32))
        self._inputs.whole.copy_(self._staging, non_blocking=True)


def _inputs(whole: Tensor, size: int, columns: int) -> _Inputs:
    token_ids, positions, places, lengths = whole[: 4 * size].view(4, size)
    return _Inputs(whole, token_ids, positions, places, lengths, whole[4 * size :].view(size, columns))


class CudaCapture:
    """As torch wants its graphs: warmed up on a stream of its own, then recorded. All share one pool of memory."""

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_RUNS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = run()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay
