"""A sequence that has a slot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpu_consumers.plan import Admission
from gpu_consumers.sequence import Sequence
from gpu_consumers.waiting_queue import Turn


@dataclass(slots=True, eq=False)
class Running:
    """`computed` tokens have been run or were `cached`; of its prefix the rest is `remaining`.

    blocks: of KV memory that it is counted with; most_blocks: what it may come to.
    output_token_ids: what it made in this slot; the newest of them is not run yet. Empty during prefill.
    resumes: whether the engine could go on with it in another slot behind its first token (`EngineInfo.resumes`).
    """

    turn: Turn
    slot: int
    cached_tokens: int
    computed_tokens: int
    blocks: int = 0
    most_blocks: int = 0
    output_token_ids: list[int] = field(default_factory=list)
    resumes: bool = True

    @property
    def sequence(self) -> Sequence:
        return self.turn.sequence

    @property
    def tenant(self) -> str:
        return self.turn.sequence.tenant

    @property
    def rank(self) -> int:
        """The class in which it got its slot; lower goes first."""
        return self.turn.rank

    @property
    def decodes(self) -> bool:
        """Whether its prefix is run, and its next token comes of its newest."""
        return bool(self.output_token_ids)

    @property
    def may_lose_slot(self) -> bool:
        """It would go on elsewhere as if nothing had been. One that has made nothing here yet always does: it begins
        its prefix again."""
        return self.resumes or not self.output_token_ids

    @property
    def output_tokens(self) -> int:
        """Of the whole answer so far, those of earlier slots and attempts included."""
        return self.sequence.resumed_tokens + len(self.output_token_ids)

    @property
    def room_blocks(self) -> int:
        """What is left to it of memory when others are admitted: a block, if it may ever need one."""
        return min(1, self.most_blocks - self.blocks)

    @property
    def remaining_tokens(self) -> int:
        return max(0, len(self.sequence.prefix_token_ids) - self.computed_tokens)

    @property
    def admission(self) -> Admission:
        sequence = self.sequence
        return Admission(
            self.slot, sequence.sampling, sequence.max_tokens, sequence.resumed_tokens, sequence.tenant,
            sequence.prefix_token_ids[: self.cached_tokens],
            prompt_tokens=len(sequence.prefix_token_ids) - sequence.resumed_tokens,
            adapter=sequence.adapter,
        )  # fmt: skip

    def interrupted(self) -> Sequence:
        """What is left of it: its output is part of its prefix, so that it goes on with its next token exactly."""
        made = tuple(self.output_token_ids)
        if not made:
            return self.sequence
        return replace(
            self.sequence,
            prefix_token_ids=self.sequence.prefix_token_ids + made,
            resumed_tokens=self.sequence.resumed_tokens + len(made),
        )
