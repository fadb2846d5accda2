"""The engine port: what a worker asks of whatever computes tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gpu_consumers.plan import SamplingParams, StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the scheduler must know to write plans that the engine can run.

    slots: sequences that can be held at once.
    max_context_tokens: the most tokens (prompt and output) in one slot.
    max_step_tokens: the most tokens (prefill chunks and decodes together) worth running in one step.
    vocabulary_size: token ids are in [0, vocabulary_size).
    eos_token_ids: a sampled one ends the sequence; it is counted but never shown.
    kv_blocks, block_tokens: keys and values lie in so many blocks of so many tokens; a sequence of n tokens holds
        ceil(n / block_tokens) of them at most, fewer if it shares some. 0 blocks: every slot always has room for
        `max_context_tokens`. A plan never asks for more than there are.
    resumes_guided: whether output that obeys a JSON schema can go on in another slot behind what it has: the engine
        reads the earlier tokens through its grammar. If not, it fails such an admission, and such a sequence keeps the
        slot in which it made its first token.
    """

    name: str
    slots: int
    max_context_tokens: int
    max_step_tokens: int
    vocabulary_size: int
    eos_token_ids: frozenset[int]
    kv_blocks: int = 0
    block_tokens: int = 64
    resumes_guided: bool = True

    def resumes(self, sampling: SamplingParams) -> bool:
        """Whether a sequence with these parameters that has output can go on in another slot."""
        return self.resumes_guided or sampling.json_schema is None

    def blocks_of(self, tokens: int) -> int:
        """How many blocks a sequence of so many tokens holds at most; 0 where memory is not counted."""
        return -(-tokens // self.block_tokens) if self.kv_blocks else 0


@dataclass(frozen=True, slots=True)
class KvUse:
    """Tokens whose keys and values are in memory, and how many fit: 0 of 0 for an engine that keeps none."""

    used_tokens: int = 0
    capacity_tokens: int = 0


class Engine(Protocol):
    """Owned by the one thread that calls it; it owns weights, KV memory and sampling state by slot.

    `execute` never raises for what one sequence did wrong: that slot is reported in `StepResult.failures` and its
    neighbours go on unchanged. Nor does it for a step that was too large for the memory: `StepResult.deferred`.
    An exception from `execute` means that the engine as a whole is unusable.
    """

    @property
    def info(self) -> EngineInfo: ...

    def warm_up(self) -> None:
        """Touch every code path once, so that the first request pays for no lazy initialisation."""
        ...

    def execute(self, plan: StepPlan) -> StepResult: ...

    def cached_tokens(self, tenant: str, token_ids: Sequence[int], adapter: str | None = None) -> int:
        """How many of the first tokens need not be run if a sequence of this tenant is admitted in the next plan.

        Always less than there are: the last one yields the first token of the answer.
        """
        ...

    def kv_use(self) -> KvUse:
        """As the newest step left it: what a plan released counts until the engine has run that plan."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class PreparesSchemas(Protocol):
    """An engine that compiles JSON schemas itself, and wants to have done so before a sequence with one is admitted.

    Without this an engine is not asked: it fails the slot of a schema that it can't follow.
    """

    def prepare_schema(self, json_schema: str, ready: Callable[[str | None], None]) -> object:
        """Begin to compile it, off the step path. For the engine's own thread, between two steps.

        `ready` is called once, before this returns or on another thread: with None, or with the reason why no answer
        can be held to the schema. Until the sequence has ended its owner keeps what is returned, and with it what was
        compiled. After `close` nobody is told any more.
        """
        ...
