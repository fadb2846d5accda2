from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_consumers.engines.torch.blocks import BlockPool


def test_the_lowest_free_blocks_go_first() -> None:
    pool = BlockPool(6)
    assert pool.allocate(4) == [0, 1, 2, 3]
    pool.release([2, 0])
    assert pool.allocate(3) == [0, 2, 4]


def test_too_many_are_refused_and_none_is_taken() -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(ValueError, match="3 KV blocks wanted and 2 free"):
        pool.allocate(3)
    assert pool.free_blocks == 2


@given(st.lists(st.integers(0, 5), max_size=40))
def test_a_block_is_never_handed_out_twice_nor_lost(sizes: list[int]) -> None:
    pool, held = BlockPool(12), list[list[int]]()
    for size in sizes:
        if size and size <= pool.free_blocks:
            held.append(pool.allocate(size))
        elif held:
            pool.release(held.pop(0))
        blocks = [block for group in held for block in group]
        assert len(set(blocks)) == len(blocks) == 12 - pool.free_blocks
