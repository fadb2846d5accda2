from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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


def test_what_is_named_is_kept_until_its_room_is_needed() -> None:
    pool = BlockPool(3, max_kept=3)
    blocks = pool.allocate(3)
    for block, key in zip(blocks, (b"a", b"b", b"c"), strict=True):
        pool.name(block, key)
    pool.release(blocks)
    assert (pool.free_blocks, pool.kept_blocks) == (3, 3)
    assert pool.hold(b"a") == 0
    assert pool.allocate(1) == [2], "the end of a sequence goes first: it is worth nothing without the beginning"
    assert [pool.find(key) for key in (b"a", b"b", b"c")] == [True, True, False]
    pool.check_integrity()


def test_a_block_of_several_holders_is_free_when_the_last_lets_it_go() -> None:
    pool = BlockPool(2, max_kept=2)
    (block,) = pool.allocate(1)
    pool.name(block, b"a")
    assert pool.hold(b"a") == block
    pool.release([block])
    assert (pool.free_blocks, pool.kept_blocks) == (1, 0)
    pool.release([block])
    assert (pool.free_blocks, pool.kept_blocks) == (2, 1)


def test_no_more_is_kept_than_may_be_and_nothing_of_what_is_of_no_use() -> None:
    pool = BlockPool(4, max_kept=1)
    blocks = pool.allocate(3)
    for block in blocks:
        pool.name(block, bytes([block]))
    pool.forget(blocks[2:])
    pool.release(blocks)
    assert [pool.find(bytes([block])) for block in blocks] == [True, False, False]
    assert BlockPool(1).kept_blocks == 0


def test_the_first_block_of_a_key_stays_the_one() -> None:
    pool = BlockPool(2, max_kept=2)
    first, second = pool.allocate(2)
    pool.name(first, b"a")
    pool.name(second, b"a")
    assert pool.hold(b"a") == first
    pool.release([second])
    assert pool.kept_blocks == 0


class SharedBlocks(RuleBasedStateMachine):
    """Sequences that begin alike, take and let go; the model knows what each block must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(8, max_kept=3)
        self.sequences: list[tuple[list[int], bytes]] = []
        self.content: dict[int, bytes] = {}

    @rule(content=st.binary(min_size=1, max_size=4).map(lambda b: bytes(x % 2 for x in b)))
    def begin(self, content: bytes) -> None:
        """Hold what is there of this content, block by block, and take the rest anew."""
        blocks: list[int] = []
        while len(blocks) < len(content) and (found := self.pool.hold(content[: len(blocks) + 1])) is not None:
            assert self.content[found] == content[: len(blocks) + 1], "a block holds something else than its key says"
            blocks.append(found)
        missing = len(content) - len(blocks)
        if missing > self.pool.free_blocks:
            self.pool.release(blocks)
            return
        for block in self.pool.allocate(missing):
            blocks.append(block)
            self.content[block] = content[: len(blocks)]
            self.pool.name(block, self.content[block])
        self.sequences.append((blocks, content))

    @precondition(lambda self: self.sequences)
    @rule(which=st.integers(0, 7), spoilt=st.booleans())
    def end(self, which: int, spoilt: bool) -> None:
        blocks, _ = self.sequences.pop(which % len(self.sequences))
        if spoilt:
            self.pool.forget(blocks)
        self.pool.release(blocks)

    @invariant()
    def what_is_held_is_held(self) -> None:
        self.pool.check_integrity()
        held = {block for blocks, _ in self.sequences for block in blocks}
        assert self.pool.free_blocks == 8 - len(held)
        for blocks, content in self.sequences:
            assert [self.content[block] for block in blocks] == [content[: n + 1] for n in range(len(content))]


TestSharedBlocks = SharedBlocks.TestCase
