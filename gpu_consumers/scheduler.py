"""Continuous batching: which tokens of which sequences run in the next step. Pure: no clock, no text, no topics.

The life of a sequence:

1. `add`: it waits in the queue, which says whose turn it is.
2. `next_step` gives it a free slot (`Admission`) and runs its prefix in chunks (`PrefillChunk`), beside others.
3. The last chunk yields its first token; from then on it decodes in every step, whatever else is in it.
4. It may lose its slot to one that has to go first (`gpu_consumers/preemption.py`). Then it waits before all others
   of its tenant, with its output as part of its prefix, and goes on where it was: `Step.preempted`, `Step.resumed`.
5. It leaves by `remove` (it is finished, cancelled, or its partition went away), by its deadline, or by a failure
   of its slot. Its slot is free at once, and the engine hears of that in the next step (`released`).

A step that prefills takes longer, and who comes meanwhile waits for its end. So while others are around
(`gpu_consumers/slot_shares.py`), a tenant that has more than its share of the slots prefills in small bites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_consumers.deadlines import Deadlines
from gpu_consumers.engine import EngineInfo
from gpu_consumers.fair_queue import DEFAULT_COSTS, FairQueue, TokenCosts
from gpu_consumers.forecast import Forecast
from gpu_consumers.plan import Decode, Logprobs, PrefillChunk, StepPlan, StepResult
from gpu_consumers.preemption import choose_victim
from gpu_consumers.prefill import Bites, share_out
from gpu_consumers.running import Running
from gpu_consumers.sequence import Sequence
from gpu_consumers.slot_shares import SlotShares
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.waiting_queue import Precedence, Turn, WaitingQueue


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next. expired: request ids that left because of their deadline.

    admitted: request ids that got a slot for the first time, with how many of their first tokens were cached.
    resumed: the same of those that got one again; they go on behind their newest token.
    preempted: request ids that lost their slot and wait again.
    """

    plan: StepPlan
    admitted: Mapping[str, int]
    expired: tuple[str, ...]
    resumed: Mapping[str, int] = field(default_factory=dict)
    preempted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought, by request id. What failed has left already. logprobs: where they were asked for."""

    tokens: Mapping[str, int]
    failures: Mapping[str, str]
    logprobs: Mapping[str, Logprobs] = field(default_factory=dict)


def _nothing_cached(tenant: str, token_ids: tuple[int, ...], adapter: str | None) -> int:
    return 0


class Scheduler:
    """Owned by the engine loop. Calls alternate: `next_step`, then `take` its result, with changes in between."""

    def __init__(
        self,
        info: EngineInfo,
        costs: TokenCosts = DEFAULT_COSTS,
        *,
        cached_tokens: Callable[[str, tuple[int, ...], str | None], int] = _nothing_cached,
        step_costs: StepCosts | None = None,
        queue: WaitingQueue | None = None,
        shares_slots: bool = True,
    ) -> None:
        """cached_tokens: `Engine.cached_tokens`, asked for each sequence that gets a slot.
        step_costs: what steps were measured to take. Without them every deadline counts as feasible.
        queue: who is next; None: the fair queue, with these token costs.
        shares_slots: whether sequences are preempted and floods prefill in bites. Only baselines do without.

        Raises ValueError if a step could be too small to decode every slot: prefills would starve."""
        if info.max_step_tokens < info.slots:
            raise ValueError(f"max_step_tokens is {info.max_step_tokens}: at least one for each of {info.slots} slots")
        self._info = info
        self._cached_tokens = cached_tokens
        self._forecast = Forecast(step_costs)
        self._costs = costs
        self._waiting: WaitingQueue = FairQueue(costs) if queue is None else queue
        self._shares = SlotShares(info.slots, self._waiting.weight)
        self._shares_slots = shares_slots
        self._deadlines = Deadlines()
        self._running: dict[str, Running] = {}  # in the order of admission
        self._by_slot: dict[int, Running] = {}
        self._free_slots = list(range(info.slots - 1, -1, -1))
        self._released: list[int] = []  # free, and the engine does not know yet
        self._bites = Bites(info.max_step_tokens)
        self._due: list[Running] = []  # owe a token for the step that is out

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
        self._shares.weights_changed()

    def set_step_costs(self, costs: StepCosts) -> None:
        """What steps were measured to take, from now on."""
        self._forecast.costs = costs

    def add(self, sequence: Sequence) -> None:
        """It waits from now on. Raises ValueError for an empty prefix, and for a request that is here already."""
        if not sequence.prefix_token_ids:
            raise ValueError(f"{sequence.request_id} has no tokens to prefill")
        if sequence.request_id in self:
            raise ValueError(f"{sequence.request_id} is here already")
        self._waiting.push(sequence)
        self._shares.arrived(sequence.tenant)
        self._deadlines.add(sequence.request_id, sequence.deadline_at_us)

    def remove(self, request_id: str) -> bool:
        """It leaves at once, wherever it is. False if it isn't here."""
        self._deadlines.remove(request_id)
        running = self._running.get(request_id)
        if running is None:
            return self._waiting.remove(request_id)
        self._vacate(running)
        return True

    def next_step(self, now_us: int) -> Step:
        """Drop what is past its deadline, give slots away, decode all that can decode, fill up with prefill."""
        expired = tuple(self._deadlines.past(now_us))
        for request_id in expired:
            self.remove(request_id)
        self._shares.look(now_us, self._waiting.is_waiting)
        self._forecast.look(now_us, len(self._running))
        preempted: list[str] = []
        admitted = self._give_slots(now_us, preempted)
        decodes = self._plan_decodes()
        plan = StepPlan(
            released=tuple(self._released),
            admitted=tuple(running.admission for running in admitted),
            prefills=self._plan_prefills(self._info.max_step_tokens - len(decodes), len(decodes)),
            decodes=decodes,
        )
        self._released.clear()
        if plan.decodes or plan.prefills:
            self._forecast.begins(now_us)
        cached = {running.sequence.request_id: running.cached_tokens for running in admitted}
        again = {running.sequence.request_id for running in admitted if running.turn.resumed}
        return Step(
            plan,
            admitted={request_id: tokens for request_id, tokens in cached.items() if request_id not in again},
            expired=expired,
            resumed={request_id: tokens for request_id, tokens in cached.items() if request_id in again},
            preempted=tuple(preempted),
        )

    def take(self, result: StepResult) -> Outcome:
        """What the engine made of the newest step. A slot that owed a token and gave neither it nor a reason failed."""
        tokens: dict[str, int] = {}
        logprobs: dict[str, Logprobs] = {}
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
            tokens[request_id] = token_id
            if (told := result.logprobs.get(running.slot)) is not None:
                logprobs[request_id] = told
            running.output_token_ids.append(token_id)
            self._waiting.charge_output(running.sequence.tenant)
        self._due.clear()
        for request_id in failures:
            self.remove(request_id)
        return Outcome(tokens, failures, logprobs)

    def check_integrity(self) -> None:
        """Raises AssertionError when the books don't agree: a slot leaked or is shared, a request is in two places."""
        self._waiting.check_integrity()
        taken = [running.slot for running in self._running.values()]
        assert sorted(taken + self._free_slots) == list(range(self._info.slots)), "a slot leaked or is shared"
        assert set(self._released) <= set(self._free_slots), "a slot was released and is taken"
        assert {slot: r.slot for slot, r in self._by_slot.items()} == {slot: slot for slot in taken}, "slots differ"
        held = Counter(running.tenant for running in self._running.values())
        assert all(self._shares.held(tenant) == slots for tenant, slots in held.items()), "slots of tenants differ"
        assert not any(request_id in self._waiting for request_id in self._running), "a request waits and runs"
        assert len(self._deadlines) <= len(self._waiting) + len(self._running), "a deadline of a request that left"

    def _give_slots(self, now_us: int, preempted: list[str]) -> list[Running]:
        """Admit as many as this step can begin to prefill, in a free slot or in the place of another."""
        admitted: list[Running] = []
        precedence = Precedence(self._is_above, self._tolerance())
        while (
            turn := self._waiting.next(now_us, self._forecast.can_finish, precedence)
        ) is not None and self._has_tokens_for(turn):
            if not self._free_slots:
                victim = self._victim(turn, admitted, precedence.tolerance)
                if victim is None:
                    break
                self._preempt(victim)
                preempted.append(victim.sequence.request_id)
            admitted.append(self._admit(turn))
        return admitted

    def _tolerance(self) -> float:
        """How much more service than the least served a tenant may have had, and still go before one that is above
        its share: what a step prefills, but no more than half of what the batch may be worth, so that the bound of the
        paper, in which the tokens of the batch stand, is not touched."""
        in_batch = sum(running.computed_tokens for running in self._running.values())
        return min(self._costs.input * self._info.max_step_tokens, self._costs.output * in_batch / 2)

    def _has_tokens_for(self, turn: Turn) -> bool:
        """Whether those that prefill before it leave it a token of this step."""
        is_above = self._is_above(turn.sequence.tenant)
        decoding = sum(1 for running in self._running.values() if not running.remaining_tokens)
        budget_tokens = self._info.max_step_tokens - decoding
        if is_above:
            budget_tokens = min(budget_tokens, self._bites.tokens(self._forecast.costs, decoding))
        before = sum(
            running.remaining_tokens
            for running in self._running.values()
            if running.remaining_tokens
            and (running.rank < turn.rank or (running.rank == turn.rank and self._is_above(running.tenant) == is_above))
        )
        return before < budget_tokens

    def _victim(self, turn: Turn, admitted: list[Running], tolerance: float) -> Running | None:
        """Who got a slot in this very step keeps it."""
        if not self._shares_slots:
            return None
        candidates = [running for running in self._running.values() if running not in admitted]
        return choose_victim(turn, candidates, self._shares, self._waiting.served, tolerance)

    def _preempt(self, running: Running) -> None:
        self._vacate(running)
        self._waiting.put_back(running.turn, running.interrupted())

    def _vacate(self, running: Running) -> None:
        del self._running[running.sequence.request_id]
        del self._by_slot[running.slot]
        self._shares.let_go(running.tenant)
        self._free_slots.append(running.slot)
        self._released.append(running.slot)

    def _admit(self, turn: Turn) -> Running:
        sequence = turn.sequence
        self._waiting.take(turn)
        cached = self._cached_tokens(sequence.tenant, sequence.prefix_token_ids, sequence.adapter)
        if not turn.resumed:
            self._waiting.give_back_input(sequence.tenant, cached)
        running = Running(turn, self._free_slots.pop(), cached, cached)
        self._running[sequence.request_id] = self._by_slot[running.slot] = running
        self._shares.hold(sequence.tenant)
        return running

    def _plan_decodes(self) -> tuple[Decode, ...]:
        decodes = []
        for running in self._running.values():
            if running.output_token_ids:
                decodes.append(Decode(running.slot, running.output_token_ids[-1], running.computed_tokens))
                running.computed_tokens += 1
                self._due.append(running)
        return tuple(decodes)

    def _plan_prefills(self, budget_tokens: int, decodes: int) -> tuple[PrefillChunk, ...]:
        prefilling = [running for running in self._running.values() if running.remaining_tokens]
        above = {running.tenant for running in prefilling if self._is_above(running.tenant)}
        gives_way = any(running.tenant not in above for running in prefilling)
        bite_tokens = self._bites.next(self._forecast.costs, decodes, gives_way=gives_way) if above else 0
        parts = share_out(prefilling, budget_tokens, above, bite_tokens)
        return tuple(self._plan_prefill(running, tokens) for running, tokens in parts)

    def _plan_prefill(self, running: Running, tokens: int) -> PrefillChunk:
        start = running.computed_tokens
        running.computed_tokens += tokens
        last = not running.remaining_tokens
        if last:
            self._due.append(running)
        token_ids = running.sequence.prefix_token_ids[start : start + tokens]
        return PrefillChunk(running.slot, token_ids, start, last)

    def _is_above(self, tenant: str) -> bool:
        return self._shares_slots and self._shares.is_above(tenant)
