"""Continuous batching: which tokens of which sequences run in the next step. Pure: no clock, no text, no topics.

The life of a sequence:

1. `add`: it waits in the fair queue, which says whose turn it is.
2. `next_step` gives it a free slot (`Admission`) and runs its prefix in chunks (`PrefillChunk`), beside others.
3. The last chunk yields its first token; from then on it decodes in every step, whatever else is in it.
4. It leaves by `remove` (it is finished, cancelled, or its partition went away), by its deadline, or by a failure
   of its slot. Its slot is free at once, and the engine hears of that in the next step (`released`).

Vocabulary of lengths: `computed` tokens have been run or were `cached`, of a prefix the rest is `remaining`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpu_consumers.deadlines import Deadlines
from gpu_consumers.engine import EngineInfo
from gpu_consumers.fair_queue import DEFAULT_COSTS, FairQueue, TokenCosts
from gpu_consumers.plan import Admission, Decode, PrefillChunk, StepPlan, StepResult
from gpu_consumers.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next. expired: request ids that left because of their deadline.

    admitted: request ids that got a slot, with how many of their first tokens were cached.
    """

    plan: StepPlan
    admitted: Mapping[str, int]
    expired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought, by request id. What failed has left already."""

    tokens: Mapping[str, int]
    failures: Mapping[str, str]


@dataclass(slots=True)
class _Running:
    sequence: Sequence
    slot: int
    cached_tokens: int
    computed_tokens: int
    newest_token_id: int | None = None  # sampled and not yet run; None during prefill

    @property
    def remaining_tokens(self) -> int:
        return max(0, len(self.sequence.prefix_token_ids) - self.computed_tokens)


def _nothing_cached(tenant: str, token_ids: tuple[int, ...]) -> int:
    return 0


class Scheduler:
    """Owned by the engine loop. Calls alternate: `next_step`, then `take` its result, with changes in between."""

    def __init__(
        self,
        info: EngineInfo,
        costs: TokenCosts = DEFAULT_COSTS,
        *,
        cached_tokens: Callable[[str, tuple[int, ...]], int] = _nothing_cached,
    ) -> None:
        """cached_tokens: `Engine.cached_tokens`, asked for each sequence that gets a slot.

        Raises ValueError if a step could be too small to decode every slot: prefills would starve."""
        if info.max_step_tokens < info.slots:
            raise ValueError(f"max_step_tokens is {info.max_step_tokens}: at least one for each of {info.slots} slots")
        self._info = info
        self._cached_tokens = cached_tokens
        self._waiting = FairQueue(costs)
        self._deadlines = Deadlines()
        self._running: dict[str, _Running] = {}  # in the order of admission
        self._by_slot: dict[int, _Running] = {}
        self._free_slots = list(range(info.slots - 1, -1, -1))
        self._released: list[int] = []  # free, and the engine does not know yet
        self._due: list[_Running] = []  # owe a token for the step that is out

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def waiting_by_tenant(self) -> dict[str, int]:
        return self._waiting.waiting_by_tenant

    @property
    def next_deadline_at_us(self) -> int | None:
        return self._deadlines.next_at_us

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._running or request_id in self._waiting

    def served(self, tenant: str) -> float:
        """Service that the tenant has received: its virtual token counter."""
        return self._waiting.served(tenant)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        self._waiting.set_weights(weights)

    def add(self, sequence: Sequence) -> None:
        """It waits from now on. Raises ValueError for an empty prefix, and for a request that is here already."""
        if not sequence.prefix_token_ids:
            raise ValueError(f"{sequence.request_id} has no tokens to prefill")
        if sequence.request_id in self:
            raise ValueError(f"{sequence.request_id} is here already")
        self._waiting.push(sequence)
        self._deadlines.add(sequence.request_id, sequence.deadline_at_us)

    def remove(self, request_id: str) -> bool:
        """It leaves at once, wherever it is. False if it isn't here."""
        self._deadlines.remove(request_id)
        running = self._running.pop(request_id, None)
        if running is None:
            return self._waiting.remove(request_id)
        del self._by_slot[running.slot]
        self._free_slots.append(running.slot)
        self._released.append(running.slot)
        return True

    def next_step(self, now_us: int) -> Step:
        """Drop what is past its deadline, decode all that can decode, and fill the step up with prefill."""
        expired = tuple(self._deadlines.past(now_us))
        for request_id in expired:
            self.remove(request_id)
        decodes = self._plan_decodes()
        budget_tokens = self._info.max_step_tokens - len(decodes)
        prefills: list[PrefillChunk] = []
        for running in self._running.values():
            if running.remaining_tokens and budget_tokens:
                prefills.append(self._plan_prefill(running, budget_tokens))
                budget_tokens -= len(prefills[-1].token_ids)
        admitted: list[_Running] = []
        while budget_tokens and self._free_slots and (sequence := self._waiting.pop()):
            admitted.append(self._admit(sequence))
            prefills.append(self._plan_prefill(admitted[-1], budget_tokens))
            budget_tokens -= len(prefills[-1].token_ids)
        plan = StepPlan(
            released=tuple(self._released),
            admitted=tuple(_admission(running) for running in admitted),
            prefills=tuple(prefills),
            decodes=decodes,
        )
        self._released.clear()
        return Step(plan, {running.sequence.request_id: running.cached_tokens for running in admitted}, expired)

    def take(self, result: StepResult) -> Outcome:
        """What the engine made of the newest step. A slot that owed a token and gave neither it nor a reason failed."""
        tokens: dict[str, int] = {}
        failures = {
            running.sequence.request_id: reason
            for slot, reason in result.failures.items()
            if (running := self._by_slot.get(slot)) is not None
        }
        for running in self._due:
            request_id = running.sequence.request_id
            if self._running.get(request_id) is not running or request_id in failures:
                continue
            token_id = result.tokens.get(running.slot)
            if token_id is None:
                failures[request_id] = "the engine gave no token for it"
                continue
            running.newest_token_id = tokens[request_id] = token_id
            self._waiting.charge_output(running.sequence.tenant)
        self._due.clear()
        for request_id in failures:
            self.remove(request_id)
        return Outcome(tokens, failures)

    def check_integrity(self) -> None:
        """Raises AssertionError when the books don't agree: a slot leaked or is shared, a request is in two places."""
        self._waiting.check_integrity()
        taken = [running.slot for running in self._running.values()]
        assert sorted(taken + self._free_slots) == list(range(self._info.slots)), "a slot leaked or is shared"
        assert set(self._released) <= set(self._free_slots), "a slot was released and is taken"
        assert {slot: r.slot for slot, r in self._by_slot.items()} == {slot: slot for slot in taken}, "slots differ"
        assert not any(request_id in self._waiting for request_id in self._running), "a request waits and runs"
        assert len(self._deadlines) <= len(self._waiting) + len(self._running), "a deadline of a request that left"

    def _plan_decodes(self) -> tuple[Decode, ...]:
        decodes = []
        for running in self._running.values():
            if running.newest_token_id is not None:
                decodes.append(Decode(running.slot, running.newest_token_id, running.computed_tokens))
                running.computed_tokens += 1
                self._due.append(running)
        return tuple(decodes)

    def _plan_prefill(self, running: _Running, budget_tokens: int) -> PrefillChunk:
        start = running.computed_tokens
        token_ids = running.sequence.prefix_token_ids[start : start + budget_tokens]
        running.computed_tokens += len(token_ids)
        last = not running.remaining_tokens
        if last:
            self._due.append(running)
        return PrefillChunk(running.slot, token_ids, start, last)

    def _admit(self, sequence: Sequence) -> _Running:
        cached = self._cached_tokens(sequence.tenant, sequence.prefix_token_ids)
        self._waiting.give_back_input(sequence.tenant, cached)
        running = _Running(sequence, self._free_slots.pop(), cached, cached)
        self._running[sequence.request_id] = self._by_slot[running.slot] = running
        return running


def _admission(running: _Running) -> Admission:
    sequence = running.sequence
    return Admission(
        running.slot, sequence.sampling, sequence.max_tokens, sequence.resumed_tokens, sequence.tenant,
        sequence.prefix_token_ids[: running.cached_tokens],
    )  # fmt: skip
