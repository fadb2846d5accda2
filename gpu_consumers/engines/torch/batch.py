"""One step as index tensors: which tokens run, where their keys go, and what each attends to.

Made once for a step and used by every layer. Tokens lie in one row: those of the decodes first, then those of
each prefill chunk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.attention_rule import Window
from gpu_consumers.engines.torch.flash import PagedIndex, index_tensor, paged_index
from gpu_consumers.engines.torch.kv_memory import KvMemory
from gpu_consumers.engines.torch.lora_step import LoraStep
from gpu_consumers.plan import PrefillChunk

_DENSE_ENOUGH: Final = 0.6
"""Above this share of blocks in use, attention runs over a whole range of memory rather than a gathered copy."""


@dataclass(frozen=True, slots=True)
class DecodeIndex:
    """How the decodes of a step attend. `blocks` below are those that attention runs over, in their order there.

    gathered: block numbers to copy together first; None where the memory's first `blocks` serve as they lie.
    blocks: how many they are.
    owner: [blocks] which decode's query each block is compared with (0 for a block of nobody in this step).
    score_rows: [decodes * heads * columns] for each decode, head and place in its sequence: the row of scores, of
        [blocks * heads, block_tokens].
    masks: by window, [decodes, 1, columns * block_tokens] 0 where there is a token in sight and -inf where not.
    weight_rows: [blocks * heads] the way back: the row of weights, of [decodes * heads * columns, block_tokens].
    members: block places decode by decode; `offsets`: where each decode's begin.
    """

    count: int
    columns: int
    gathered: Tensor | None
    blocks: int
    owner: Tensor
    score_rows: Tensor
    masks: Mapping[Window, Tensor]
    weight_rows: Tensor
    members: Tensor
    offsets: Tensor


@dataclass(frozen=True, slots=True)
class DecodeTable:
    """The same for the compiled kernel, which needs no more than where each decode's tokens lie.

    blocks: [decodes, columns] int32, block numbers in order, 0 behind the last. lengths: [decodes] int32 in tokens.
    """

    count: int
    blocks: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """How one prefill chunk attends: its rows of the step, and what lies before it in its sequence.

    blocks: the sequence's blocks, this chunk's included; None for a chunk that begins its sequence, which attends
        to itself alone.
    masks: by window, [tokens, start + tokens] 0 for what a token attends to and -inf for the rest; None where plain
        causality says it all.
    """

    begin: int
    end: int
    length: int
    blocks: Tensor | None
    masks: Mapping[Window, Tensor | None]


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """All prefill chunks of a step for the compiled kernel.

    blocks: [chunks, columns] int32, block numbers of each sequence in order, 0 behind the last.
    chunks: [chunks, 3] int64: first row of the step, tokens, and tokens of the sequence before them.
    """

    blocks: Tensor
    chunks: Tensor


@dataclass(frozen=True, slots=True)
class StepBatch:
    """token_ids, positions: [tokens].

    places: [tokens] where their keys and values go, counted in tokens of the memory.
    kv_rows: the same as rows of `LayerMemory.rows`, [tokens, 2 * key-value heads]; None for the compiled kernels.
    decodes, chunks: how they attend, the one kind and the other (no chunks: an empty tuple); paged: all of them at
        once, in the place of both.
    output_rows: the tokens whose logits are wanted, in the order of output_slots.
    lora, output_lora: what adapters add to the rows of the step, and to those of `output_rows`; None: nothing.
    """

    token_ids: Tensor
    positions: Tensor
    places: Tensor
    kv_rows: Tensor | None
    decodes: DecodeIndex | DecodeTable | None
    chunks: tuple[ChunkIndex, ...] | ChunkTable
    output_rows: Tensor
    output_slots: tuple[int, ...]
    paged: PagedIndex | None = None
    lora: LoraStep | None = None
    output_lora: LoraStep | None = None

    def of_outputs(self) -> StepBatch:
        """The tokens alone whose logits are wanted, for what works token by token: nothing attends in it."""
        rows = self.output_rows
        return StepBatch(
            token_ids=self.token_ids[rows],
            positions=self.positions[rows],
            places=self.places[rows],
            kv_rows=None,
            decodes=None,
            chunks=(),
            output_rows=torch.arange(len(rows), device=rows.device),
            output_slots=self.output_slots,
            lora=self.output_lora,
        )


def build_batch(
    work: StepWork,
    memory: KvMemory,
    *,
    query_heads: int,
    dtype: torch.dtype,
    windows: Collection[Window] = (None,),
    compiled: bool = False,
) -> StepBatch:
    """`memory` must have room for every token of the step (`KvMemory.make_room`).

    windows: those of the model's layers. compiled: for the kernels in C++. A memory whose layout is for FlashAttention
    gets a step for it.
    """
    device, is_paged = memory.layers[0].rows.device, memory.layout.tokens_first
    token_ids = [decode.token_id for decode in work.decodes]
    positions = [decode.position for decode in work.decodes]
    places = [memory.place(decode.slot, decode.position) for decode in work.decodes]
    output_rows = list(range(len(token_ids)))
    output_slots = [decode.slot for decode in work.decodes]
    spans = [(decode.slot, 1, decode.position + 1) for decode in work.decodes]
    chunks = []
    for chunk in work.prefills:
        begin = len(token_ids)
        span = range(chunk.start, chunk.start + len(chunk.token_ids))
        token_ids.extend(chunk.token_ids)
        positions.extend(span)
        places.extend(memory.place(chunk.slot, position) for position in span)
        spans.append((chunk.slot, len(chunk.token_ids), span.stop))
        if not is_paged and not compiled:
            chunks.append(_chunk_index(chunk, begin, memory.blocks_of(chunk.slot), windows, dtype, device))
        if chunk.last:
            output_rows.append(len(token_ids) - 1)
            output_slots.append(chunk.slot)
    at = index_tensor(places, device)
    decodes: DecodeIndex | DecodeTable | None = None
    if work.decodes and not is_paged:
        if compiled:
            decodes = _decode_table(work, memory)
        else:
            decodes = _decode_index(work, memory, query_heads, windows, dtype, device)
    return StepBatch(
        token_ids=index_tensor(token_ids, device),
        positions=index_tensor(positions, device),
        places=at,
        kv_rows=None if compiled else memory.rows_of(at),
        decodes=decodes,
        chunks=_chunk_table(work, memory) if compiled and work.prefills else tuple(chunks),
        output_rows=index_tensor(output_rows, device),
        output_slots=tuple(output_slots),
        paged=paged_index(memory, spans, device) if is_paged else None,
    )


def _chunk_index(
    chunk: PrefillChunk,
    begin: int,
    blocks: list[int],
    windows: Collection[Window],
    dtype: torch.dtype,
    device: torch.device,
) -> ChunkIndex:
    tokens = len(chunk.token_ids)
    length = chunk.start + tokens
    held = torch.tensor(blocks, device=device) if chunk.start else None
    masks = {window: _chunk_mask(chunk.start, tokens, window, dtype, device) for window in windows}
    return ChunkIndex(begin, begin + tokens, length, held, masks)


def _chunk_mask(start: int, tokens: int, window: Window, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    slides = window is not None and start + tokens > window
    if start == 0 and not slides:
        return None
    unseen = torch.full((tokens, start + tokens), float("-inf"), dtype=dtype, device=device)
    mask = unseen.triu(start + 1)
    return mask.add_(unseen.tril_(start - window)) if window is not None and slides else mask


def _chunk_table(work: StepWork, memory: KvMemory) -> ChunkTable:
    sizes = [len(chunk.token_ids) for chunk in work.prefills]
    begins = accumulate(sizes, initial=len(work.decodes))
    return ChunkTable(
        blocks=_block_table(memory, [chunk.slot for chunk in work.prefills]),
        chunks=torch.tensor([*zip(begins, sizes, [chunk.start for chunk in work.prefills], strict=False)]),
    )


def _block_table(memory: KvMemory, slots: Sequence[int]) -> Tensor:
    """[slots, columns] int32: the blocks of each in order, 0 behind the last."""
    held = [memory.blocks_of(slot) for slot in slots]
    columns = max(map(len, held))
    return torch.tensor([blocks + [0] * (columns - len(blocks)) for blocks in held], dtype=torch.int32)


def _decode_table(work: StepWork, memory: KvMemory) -> DecodeTable:
    return DecodeTable(
        count=len(work.decodes),
        blocks=_block_table(memory, [decode.slot for decode in work.decodes]),
        lengths=torch.tensor([decode.position + 1 for decode in work.decodes], dtype=torch.int32),
    )


def _decode_index(
    work: StepWork,
    memory: KvMemory,
    query_heads: int,
    windows: Collection[Window],
    dtype: torch.dtype,
    device: torch.device,
) -> DecodeIndex:
    held = [memory.blocks_of(decode.slot) for decode in work.decodes]
    count, columns = len(held), max(map(len, held))
    used = [block for blocks in held for block in blocks]
    # A block that several sequences share is compared with the query of each, so it has to be there several times.
    shared = len(set(used)) < len(used)
    dense = not shared and len(used) >= _DENSE_ENOUGH * (max(used) + 1)
    blocks = max(used) + 1 if dense else len(used)
    members = torch.tensor(used, device=device) if dense else torch.arange(len(used), device=device)
    sizes = torch.tensor([len(blocks) for blocks in held], device=device)
    owners = torch.repeat_interleave(torch.arange(count, device=device), sizes)
    offsets = sizes.cumsum(0) - sizes
    column_of = torch.arange(len(used), device=device) - offsets[owners]

    heads = torch.arange(query_heads, device=device)
    owner = torch.zeros(blocks, dtype=torch.long, device=device)
    owner[members] = owners
    score_rows = torch.zeros(count, query_heads, columns, dtype=torch.long, device=device)
    score_rows[owners, :, column_of] = members.unsqueeze(-1) * query_heads + heads
    weight_rows = torch.zeros(blocks, query_heads, dtype=torch.long, device=device)
    weight_rows[members] = (owners.unsqueeze(-1) * query_heads + heads) * columns + column_of.unsqueeze(-1)
    return DecodeIndex(
        count=count,
        columns=columns,
        gathered=None if dense else torch.tensor(used, device=device),
        blocks=blocks,
        owner=owner,
        score_rows=score_rows.view(-1),
        masks=_decode_masks(work, columns * memory.layout.block_tokens, windows, dtype, device),
        weight_rows=weight_rows.view(-1),
        members=members,
        offsets=offsets,
    )


def _decode_masks(
    work: StepWork, most_tokens: int, windows: Collection[Window], dtype: torch.dtype, device: torch.device
) -> dict[Window, Tensor]:
    lengths = torch.tensor([decode.position + 1 for decode in work.decodes], device=device).unsqueeze(-1)
    places = torch.arange(most_tokens, device=device)
    masks: dict[Window, Tensor] = {}
    for window in windows:
        unseen = places >= lengths
        if window is not None:
            unseen |= places < lengths - window
        mask = torch.zeros(unseen.shape, dtype=dtype, device=device).masked_fill_(unseen, float("-inf"))
        masks[window] = mask.unsqueeze(1)
    return masks
