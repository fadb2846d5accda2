"""Continuous batching: which tokens of which sequences run in the next step. Pure: no clock, no text, no topics.

The life of a sequence:

1. `add`: it waits in the queue, which says whose turn it is.
2. `next_step` gives it a free slot and blocks of KV memory for its prefix (`Admission`), and runs that in chunks
   (`PrefillChunk`), beside others.
3. The last chunk yields its first token; from then on it decodes in every step, whatever else is in it, and takes
   another block where its tokens have filled one.
4. It may lose its slot to one that has to go first, or when blocks run out (`gpu_consumers/preemption.py`). Then it
   waits before all others of its tenant, with its output as part of its prefix, and goes on where it was:
   `Step.preempted`, `Step.resumed`.
5. It leaves by `remove` (it is finished, cancelled, or its partition went away), by its deadline, or by a failure
   of its slot. Its slot and blocks are free at once, and the engine hears of that in the next step (`released`).

A step that prefills takes longer, and who comes meanwhile waits for its end. So while others are around
(`gpu_consumers/presence.py`), a tenant that has more than its share (`gpu_consumers/shares.py`) prefills in bites.

Why it never stands still: what may be served fits into memory alone, so there is always one that goes on; and when a
sequence loses its slot to the block of another, then an output token was made, by one of the two, that nobody takes
away again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpu_consumers.deadlines import Deadlines
from gpu_consumers.engine import EngineInfo
from gpu_consumers.fair_queue import DEFAULT_COSTS, FairQueue, TokenCosts
from gpu_consumers.forecast import Forecast
from gpu_consumers.in_flight import InFlight
from gpu_consumers.plan import Logprobs, PrefillChunk, StepPlan, StepResult
from gpu_consumers.preemption import choose_victim, choose_victims, who_gives_way
from gpu_consumers.prefill import Bites, share_out
from gpu_consumers.running import Running
from gpu_consumers.running_batch import RunningBatch
from gpu_consumers.sequence import Sequence
from gpu_consumers.step import Outcome, Step
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.step_limit import StepLimit
from gpu_consumers.waiting_queue import Precedence, Turn, WaitingQueue


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
        shares_slots: whether classes and tenants take slots from each other and floods prefill in bites. Only
            baselines do without.

        Raises ValueError if a step could be too small to decode every slot: prefills would starve."""
        if info.max_step_tokens < info.slots:
            raise ValueError(f"max_step_tokens is {info.max_step_tokens}: at least one for each of {info.slots} slots")
        self._info = info
        self._cached_tokens = cached_tokens
        self._forecast = Forecast(step_costs)
        self._costs = costs
        self._waiting: WaitingQueue = FairQueue(costs) if queue is None else queue
        self._batch = RunningBatch(info, self._waiting.weight)
        self._shares_slots = shares_slots
        self._deadlines = Deadlines()
        self._bites = Bites(info.max_step_tokens)
        self._limit = StepLimit(info.max_step_tokens)
        self._in_flight = InFlight()
        self._preempted: list[str] = []  # and not told yet

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        return len(self._batch)

    @property
    def waiting_by_tenant(self) -> dict[str, int]:
        return self._waiting.waiting_by_tenant

    @property
    def next_deadline_at_us(self) -> int | None:
        return self._deadlines.next_at_us

    @property
    def held_blocks(self) -> int:
        """Blocks of KV memory that those which run are counted with; 0 where memory is not counted."""
        return self._info.kv_blocks - self._batch.blocks.free

    def __contains__(self, request_id: str) -> bool:
        return self._batch.find(request_id) is not None or request_id in self._waiting

    def served(self, tenant: str) -> float:
        """Service that the tenant has received: its virtual token counter."""
        return self._waiting.served(tenant)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        self._waiting.set_weights(weights)
        self._batch.presence.weights_changed()

    def set_step_costs(self, costs: StepCosts) -> None:
        """What steps were measured to take, from now on."""
        self._forecast.costs = costs

    def add(self, sequence: Sequence) -> None:
        """It waits from now on. Raises ValueError for an empty prefix, for a request that is here already, and for
        what is larger than the memory: it would wait for ever, and all others behind it."""
        if not sequence.prefix_token_ids:
            raise ValueError(f"{sequence.request_id} has no tokens to prefill")
        if sequence.request_id in self:
            raise ValueError(f"{sequence.request_id} is here already")
        if self._info.blocks_of(sequence.max_tokens) > self._info.kv_blocks:
            raise ValueError(f"{sequence.request_id} may need more than the {self._info.kv_blocks} KV blocks there are")
        self._waiting.push(sequence)
        self._batch.presence.arrived(sequence.tenant)
        self._deadlines.add(sequence.request_id, sequence.deadline_at_us)

    def remove(self, request_id: str) -> bool:
        """It leaves at once, wherever it is. False if it isn't here."""
        self._deadlines.remove(request_id)
        running = self._batch.find(request_id)
        if running is None:
            self._preempted = [other for other in self._preempted if other != request_id]
            return self._waiting.remove(request_id)
        self._batch.vacate(running)
        self._forecast.lengths.ended(running.tenant, running.output_tokens)
        return True

    def next_step(self, now_us: int) -> Step:
        """Drop what is past its deadline, give slots away, decode all that can decode, fill up with prefill."""
        expired = tuple(self._deadlines.past(now_us))
        for request_id in expired:
            self.remove(request_id)
        self._batch.presence.look(now_us, self._batch.slots.tenants, self._waiting.is_waiting)
        self._forecast.look(now_us, len(self._batch))
        self._make_room_to_decode()
        admitted = self._give_slots(now_us)
        preempted = tuple(self._preempted)
        self._preempted.clear()
        self._in_flight.clear()
        decodes = tuple(self._in_flight.decode(running) for running in self._batch if running.decodes)
        plan = StepPlan(
            released=self._batch.take_released(),
            admitted=tuple(running.admission for running in admitted),
            prefills=self._plan_prefills(self._limit.tokens - len(decodes), len(decodes)),
            decodes=decodes,
        )
        if plan.decodes or plan.prefills:
            self._forecast.begins(now_us)
        cached = {running.sequence.request_id: running.cached_tokens for running in admitted}
        again = {running.sequence.request_id for running in admitted if running.turn.resumed}
        return Step(
            plan,
            admitted={request_id: tokens for request_id, tokens in cached.items() if request_id not in again},
            expired=expired,
            resumed={request_id: tokens for request_id, tokens in cached.items() if request_id in again},
            preempted=preempted,
        )

    def take(self, result: StepResult) -> Outcome:
        """What the engine made of the newest step. A slot that owed a token and gave neither it nor a reason failed."""
        tokens: dict[str, int] = {}
        logprobs: dict[str, Logprobs] = {}
        failures = {
            running.sequence.request_id: reason
            for slot, reason in result.failures.items()
            if (running := self._batch.at(slot)) is not None
        }
        self._take_deferred(result.deferred, failures)
        for running in self._in_flight.due:
            request_id = running.sequence.request_id
            if running not in self._batch or request_id in failures:
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
        for request_id in failures:
            self.remove(request_id)
        return Outcome(tokens, failures, logprobs)

    def check_integrity(self) -> None:
        """Raises AssertionError when the books don't agree: a slot or block leaked, a request is in two places."""
        self._waiting.check_integrity()
        self._batch.check_integrity()
        assert not any(running.sequence.request_id in self._waiting for running in self._batch), "it waits and runs"
        assert len(self._deadlines) <= len(self._waiting) + len(self._batch), "a deadline of a request that left"

    def _take_deferred(self, deferred: frozenset[int], failures: dict[str, str]) -> None:
        """Memory for a step ran out: what did not run waits again, and later steps are smaller. One that was alone,
        with one token, can't be made smaller: it has failed."""
        if not deferred:
            if self._in_flight.tokens:
                self._limit.went_well()
            return
        if self._in_flight.tokens > 1:
            self._limit.ran_out(self._in_flight.tokens)
        for running in [running for running in self._batch if running.slot in deferred]:
            if self._in_flight.tokens > 1:
                self._preempt(running)
            else:
                failures[running.sequence.request_id] = "not even one token of it fits into the engine's memory"

    def _make_room_to_decode(self) -> None:
        """Every sequence that decodes has the block that it needs, or gives way."""
        for running in who_gives_way(self._batch, self._limit.tokens, self._is_above):
            self._preempt(running)
        self._batch.grow()

    def _give_slots(self, now_us: int) -> list[Running]:
        """Admit as many as this step can begin to prefill, in a free slot or in the place of others."""
        admitted: list[Running] = []
        precedence = Precedence(self._bites_only, self._tolerance())
        while (
            turn := self._waiting.next(now_us, self._forecast.can_finish, precedence)
        ) is not None and self._has_tokens_for(turn):
            victims = self._victims(turn, admitted, precedence.tolerance)
            if victims is None:
                break
            for victim in victims:
                self._preempt(victim)
            admitted.append(self._admit(turn))
        return admitted

    def _tolerance(self) -> float:
        """How much more service than the least served a tenant may have had, and still go before one that is above
        its share: what a step prefills, but no more than half of what the batch may be worth, so that the bound of the
        paper, in which the tokens of the batch stand, is not touched."""
        in_batch = sum(running.computed_tokens for running in self._batch)
        return min(self._costs.input * self._info.max_step_tokens, self._costs.output * in_batch / 2)

    def _has_tokens_for(self, turn: Turn) -> bool:
        """Whether those that prefill before it leave it a token of this step."""
        bites = self._bites_only(turn.sequence.tenant)
        decoding = sum(1 for running in self._batch if not running.remaining_tokens)
        budget_tokens = self._limit.tokens - decoding
        if bites:
            budget_tokens = min(budget_tokens, self._bites.tokens(self._forecast.costs, decoding))
        before = sum(
            running.remaining_tokens
            for running in self._batch
            if running.remaining_tokens
            and (running.rank < turn.rank or (running.rank == turn.rank and self._bites_only(running.tenant) == bites))
        )
        return before < budget_tokens

    def _victims(self, turn: Turn, admitted: list[Running], tolerance: float) -> list[Running] | None:
        """Who has to go for it; None if it has to wait. Who got a slot in this very step keeps it."""
        missing_blocks = self._batch.missing_blocks(turn.sequence)
        has_slot = self._batch.slots.free > 0 and len(self._batch) < self._limit.tokens
        if has_slot and missing_blocks <= 0:
            return []
        if not self._shares_slots:
            return None
        candidates = [running for running in self._batch if running not in admitted]
        served = self._waiting.served
        if missing_blocks > 0:
            return choose_victims(turn, candidates, self._batch.blocks, missing_blocks, served, tolerance) or None
        victim = choose_victim(turn, candidates, self._batch.slots, served, tolerance)
        return None if victim is None else [victim]

    def _preempt(self, running: Running) -> None:
        self._batch.vacate(running)
        self._waiting.put_back(running.turn, running.interrupted())
        self._preempted.append(running.sequence.request_id)

    def _admit(self, turn: Turn) -> Running:
        sequence = turn.sequence
        self._waiting.take(turn)
        cached = self._cached_tokens(sequence.tenant, sequence.prefix_token_ids, sequence.adapter)
        if not turn.resumed:
            self._waiting.give_back_input(sequence.tenant, cached)
        return self._batch.admit(turn, cached)

    def _plan_prefills(self, budget_tokens: int, decodes: int) -> tuple[PrefillChunk, ...]:
        prefilling = [running for running in self._batch if running.remaining_tokens]
        biting = {running.tenant for running in prefilling if self._bites_only(running.tenant)}
        gives_way = any(running.tenant not in biting for running in prefilling)
        bite_tokens = self._bites.next(self._forecast.costs, decodes, gives_way=gives_way) if biting else 0
        parts = share_out(prefilling, budget_tokens, biting, bite_tokens)
        return tuple(self._in_flight.prefill(running, tokens) for running, tokens in parts)

    def _is_above(self, tenant: str) -> bool:
        return self._shares_slots and self._batch.is_above(tenant)

    def _bites_only(self, tenant: str) -> bool:
        """It prefills in bites: it has more than its share, or wants it and has enough while newcomers are expected."""
        if not self._shares_slots:
            return False
        if self._batch.is_above(tenant):
            return True
        return self._batch.has_enough(tenant, self._waiting.waiting_of(tenant)) and self._batch.expects_newcomers
