"""The sequences that run, each with its slot and its blocks of KV memory: pure bookkeeping.

Blocks are counted as an upper bound: a sequence holds those of all its tokens, its prefix from the moment that it gets
its slot, and the one that its next token needs before that token is run. What the prefix cache lets it share with
others only makes it less, and what the cache keeps goes when its room is needed. So an engine that is asked for no
more than is counted here never runs out of them.

A sequence that could not go on in another slot (`EngineInfo.resumes`) holds the blocks of the longest answer that it
may have from the start. So it never lacks one, and memory that runs short never costs it its slot, even where nothing
else runs: it waits longer for a slot, and ends in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from gpu_consumers.engine import EngineInfo
from gpu_consumers.presence import Presence
from gpu_consumers.running import Running
from gpu_consumers.sequence import Sequence
from gpu_consumers.shares import Shares
from gpu_consumers.waiting_queue import Turn


class RunningBatch:
    """Owned by the scheduler. `slots`, `blocks`: which tenant holds how many."""

    def __init__(self, info: EngineInfo, weight: Callable[[str], float]) -> None:
        self._info = info
        self.presence = Presence(weight)
        self.slots = Shares(info.slots, self.presence)
        self.blocks = Shares(info.kv_blocks, self.presence)
        self._running: dict[str, Running] = {}  # in the order of admission
        self._by_slot: dict[int, Running] = {}
        self._free_slots = list(range(info.slots - 1, -1, -1))
        self._released: list[int] = []  # free, and the engine does not know yet

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        """In the order of admission."""
        return iter(self._running.values())

    def __contains__(self, running: Running) -> bool:
        return self._running.get(running.sequence.request_id) is running

    def find(self, request_id: str) -> Running | None:
        return self._running.get(request_id)

    def at(self, slot: int) -> Running | None:
        """Who has the slot."""
        return self._by_slot.get(slot)

    def is_above(self, tenant: str) -> bool:
        """It has more than its share of the slots, or of the memory."""
        return self.slots.is_above(tenant) or self.blocks.is_above(tenant)

    @property
    def expects_newcomers(self) -> bool:
        """Whether a tenant is around that has less than half of its share of the slots: its next request may come in
        any step, or waits already."""
        return len(self.presence) > sum(1 for tenant in self.slots.tenants if not self.slots.is_far_below(tenant))

    def has_enough(self, tenant: str, waiting: int) -> bool:
        """It has several slots, half of its share of them or more, and with those that wait wants more than it."""
        held = self.slots.held(tenant)
        return held > 1 and not self.slots.is_far_below(tenant) and held + waiting > self.slots.share(tenant)

    def missing_blocks(self, sequence: Sequence) -> int:
        """How many blocks there are too few to admit it; 0 or less: it has room.

        It must find its prefix and one block more, and leave one to everybody who runs and may need it: to be
        admitted and to lose the slot at the next block, or to take another's, would be work done twice.
        """
        first = self._first_blocks(sequence)
        if not self._running:
            return first - self.blocks.free
        room = min(1, self._info.blocks_of(sequence.max_tokens) - first)
        return first + room + sum(running.room_blocks for running in self) - self.blocks.free

    def admit(self, turn: Turn, cached_tokens: int) -> Running:
        """Give it a slot and its first blocks. Raises IndexError without a slot, ValueError without blocks."""
        sequence = turn.sequence
        blocks = self._first_blocks(sequence)
        self.blocks.hold(sequence.tenant, blocks)
        self.slots.hold(sequence.tenant)
        most_blocks = self._info.blocks_of(sequence.max_tokens)
        running = Running(
            turn, self._free_slots.pop(), cached_tokens, cached_tokens, blocks, most_blocks,
            resumes=self._info.resumes(sequence.sampling),
        )  # fmt: skip
        self._running[sequence.request_id] = self._by_slot[running.slot] = running
        return running

    def lacks_blocks(self, running: Running) -> bool:
        """Whether its next decode needs a block more than it holds."""
        return running.decodes and self._info.blocks_of(running.computed_tokens + 1) > running.blocks

    def grow(self) -> None:
        """One block more for everybody who lacks one. Raises ValueError if there are too few."""
        for running in self:
            if self.lacks_blocks(running):
                self.blocks.grow(running.tenant, 1)
                running.blocks += 1

    def vacate(self, running: Running) -> None:
        """Its slot and blocks are free."""
        del self._running[running.sequence.request_id]
        del self._by_slot[running.slot]
        self.slots.let_go(running.tenant)
        self.blocks.let_go(running.tenant, running.blocks)
        self._free_slots.append(running.slot)
        self._released.append(running.slot)

    def take_released(self) -> tuple[int, ...]:
        """Slots that were vacated since this was last asked, for the engine to hear of."""
        released = tuple(self._released)
        self._released.clear()
        return released

    def _first_blocks(self, sequence: Sequence) -> int:
        """What it is counted with from its admission on."""
        if not self._info.resumes(sequence.sampling):
            return self._info.blocks_of(sequence.max_tokens)
        return self._info.blocks_of(len(sequence.prefix_token_ids))

    def check_integrity(self) -> None:
        """Raises AssertionError when a slot or block leaked or is shared."""
        taken = [running.slot for running in self]
        assert sorted(taken + self._free_slots) == list(range(self._info.slots)), "a slot leaked or is shared"
        assert set(self._released) <= set(self._free_slots), "a slot was released and is taken"
        assert {slot: r.slot for slot, r in self._by_slot.items()} == {slot: slot for slot in taken}, "slots differ"
        assert self.slots.free == len(self._free_slots), "free slots differ"
        held = Counter(running.tenant for running in self)
        assert all(self.slots.held(tenant) == slots for tenant, slots in held.items()), "slots of tenants differ"
        blocks: Counter[str] = Counter()
        for running in self:
            assert running.blocks >= self._info.blocks_of(running.computed_tokens), "a sequence has too few blocks"
            blocks[running.tenant] += running.blocks
        assert all(self.blocks.held(tenant) == count for tenant, count in blocks.items()), "blocks of tenants differ"
        assert self.blocks.free == self._info.kv_blocks - blocks.total() >= 0, "a block leaked or is held twice"
