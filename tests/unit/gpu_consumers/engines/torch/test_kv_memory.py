from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gpu_consumers.engines.torch.blocks import BLOCK_TOKENS
from gpu_consumers.engines.torch.kv_memory import KvMemory, KvShape


def memory(blocks: int = 6) -> KvMemory:
    shape = KvShape(layers=2, heads=2, head_dim=8)
    return KvMemory(shape, blocks=blocks, dtype=torch.float32, device=torch.device("cpu"))


def test_every_slot_can_grow_to_the_whole_context() -> None:
    kv = memory()
    kv.make_room({0: 3 * BLOCK_TOKENS - 1, 1: 3 * BLOCK_TOKENS - 1})
    assert (kv.blocks, kv.free_blocks) == (6, 0)


def test_a_block_is_taken_when_a_sequence_crosses_into_it() -> None:
    kv = memory()
    kv.make_room({0: BLOCK_TOKENS, 1: 1})
    kv.make_room({0: BLOCK_TOKENS, 1: 2})
    assert (kv.blocks_of(0), kv.blocks_of(1)) == ([0], [1])
    kv.make_room({0: BLOCK_TOKENS + 1})
    assert kv.blocks_of(0) == [0, 2]


def test_released_blocks_are_the_next_sequence_s_and_come_clean() -> None:
    kv = memory()
    kv.make_room({0: 1, 1: 1})
    for layer in kv.layers:
        layer.rows.fill_(float("nan"))
    kv.release(0)
    kv.release(0)
    assert kv.blocks_of(0) == []
    kv.make_room({0: 1})
    assert kv.blocks_of(0) == [0]
    for layer in kv.layers:
        assert not layer.keys[0].any()
        assert not layer.values[0].any()
        assert layer.keys[1].isnan().all()  # the neighbour's is left alone


def test_rows_are_the_keys_and_then_the_values() -> None:
    layer = memory().layers[1]
    layer.rows[0] = 1.0
    layer.rows[len(layer.rows) // 2] = 2.0
    assert layer.keys[0, 0, 0].tolist() == [1.0] * 8
    assert layer.values[0, 0, 0].tolist() == [2.0] * 8


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc")
def test_memory_that_no_token_has_touched_is_not_resident() -> None:
    before = resident_bytes()
    kv = KvMemory(KvShape(8, 4, 64), blocks=32 * 2048 // BLOCK_TOKENS, dtype=torch.float32, device=torch.device("cpu"))
    size = 2 * 8 * 4 * 64 * 4 * 32 * 2048
    assert sum(layer.rows.nbytes for layer in kv.layers) >= size
    kv.make_room(dict.fromkeys(range(32), 100))
    assert resident_bytes() - before < size // 4


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
