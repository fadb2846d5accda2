"""Attention over blocks against attention over each sequence by itself, written out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.engines.torch.attention import attend
from gpu_consumers.engines.torch.batch import DecodeIndex, StepBatch, build_batch
from gpu_consumers.engines.torch.kv_memory import KvMemory, KvShape
from gpu_consumers.plan import Decode, PrefillChunk

QUERY_HEADS, KEY_HEADS, HEAD_DIM = 6, 2, 8
SLOTS = 5


class Scene:
    """KV memory in which `lengths[slot]` tokens of each slot are written, and their keys and values in order."""

    def __init__(self, lengths: dict[int, int]) -> None:
        torch.manual_seed(3)
        self.memory = KvMemory(
            KvShape(1, KEY_HEADS, HEAD_DIM),
            blocks=4 * SLOTS,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        self.past: dict[int, torch.Tensor] = {}
        for slot, length in lengths.items():
            self.memory.make_room({slot: length})
            self.past[slot] = torch.empty(0, 2 * KEY_HEADS, HEAD_DIM)
            if length:
                self.step(StepWork((PrefillChunk(slot, (1,) * length, 0, False),), (), {}))

    def step(self, work: StepWork) -> tuple[StepBatch, torch.Tensor, torch.Tensor]:
        """Run a step's attention: its batch, ours and the reference, [tokens, query heads * head_dim] both."""
        parts = [(decode.slot, 1) for decode in work.decodes]
        parts += [(chunk.slot, len(chunk.token_ids)) for chunk in work.prefills]
        self.memory.make_room({slot: len(self.past[slot]) + count for slot, count in parts})
        batch = build_batch(work, self.memory, query_heads=QUERY_HEADS, dtype=torch.float32)
        qkv = torch.randn(len(batch.token_ids), QUERY_HEADS + 2 * KEY_HEADS, HEAD_DIM)
        layer = self.memory.layers[0]
        assert batch.kv_rows is not None
        layer.rows[batch.kv_rows] = qkv[:, QUERY_HEADS:]
        expected, begin = [], 0
        for slot, count in parts:
            own = qkv[begin : begin + count]
            self.past[slot] = torch.cat((self.past[slot], own[:, QUERY_HEADS:]))
            expected.append(self._reference(own[:, :QUERY_HEADS], self.past[slot]))
            begin += count
        return batch, attend(qkv, batch, layer, query_heads=QUERY_HEADS), torch.cat(expected)

    @staticmethod
    def _reference(queries: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        count, length = len(queries), len(past)
        keys, values = past.repeat_interleave(QUERY_HEADS // KEY_HEADS, 1).transpose(0, 1).chunk(2)
        seen = torch.ones(count, length, dtype=torch.bool).tril_(length - count)
        out = F.scaled_dot_product_attention(queries.transpose(0, 1), keys, values, attn_mask=seen, scale=1.0)
        return out.transpose(0, 1).flatten(1)


def decode(slot: int, position: int) -> Decode:
    return Decode(slot, 1, position)


@pytest.mark.parametrize("lengths", [[1], [63, 64, 65], [200, 1, 64, 127, 3]])
@torch.inference_mode()
def test_decodes_of_any_lengths_attend_to_their_own_sequence(lengths: list[int]) -> None:
    scene = Scene(dict(enumerate(lengths)))
    for ahead in range(3):
        decodes = tuple(decode(slot, length + ahead) for slot, length in enumerate(lengths))
        _, ours, expected = scene.step(StepWork((), decodes, {}))
        torch.testing.assert_close(ours, expected)


@torch.inference_mode()
def test_a_few_blocks_far_apart_are_gathered_and_many_close_ones_are_not() -> None:
    scene = Scene({0: 200, 1: 10, 2: 200, 3: 10})
    batch, ours, expected = scene.step(StepWork((), (decode(3, 10), decode(1, 10)), {}))
    assert isinstance(batch.decodes, DecodeIndex)
    assert batch.decodes.gathered is not None
    torch.testing.assert_close(ours, expected)
    batch, ours, expected = scene.step(StepWork((), (decode(2, 200), decode(0, 200), decode(3, 11)), {}))
    assert isinstance(batch.decodes, DecodeIndex)
    assert batch.decodes.gathered is None
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 64, 100])
@torch.inference_mode()
def test_chunks_beside_decodes_attend_to_what_came_before_them(chunk_tokens: int) -> None:
    scene = Scene({0: 90, 1: 0, 2: 30})
    for turn in range(2):
        chunk = PrefillChunk(1, (1,) * chunk_tokens, turn * chunk_tokens, last=False)
        late = PrefillChunk(2, (1, 1), 30 + 2 * turn, last=True)
        batch, ours, expected = scene.step(StepWork((chunk, late), (decode(0, 90 + turn),), {}))
        assert batch.output_slots == (0, 2)
        assert batch.output_rows.tolist() == [0, chunk_tokens + 2]
        torch.testing.assert_close(ours, expected)


@torch.inference_mode()
def test_what_others_left_in_memory_never_comes_through() -> None:
    scene = Scene({0: 70, 1: 70})
    for block in scene.memory.blocks_of(0):
        scene.memory.layers[0].keys[block] = float("nan")
        scene.memory.layers[0].values[block] = float("nan")
    _, ours, expected = scene.step(StepWork((), (decode(1, 70),), {}))
    torch.testing.assert_close(ours, expected)
