"""Whatever arrives, is cancelled, expires or fails, in whatever order: what the scheduler promises."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.fair_queue import DEFAULT_COSTS
from gpu_consumers.plan import SamplingParams, StepPlan, StepResult
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence
from gpu_consumers.step import Step
from gpu_consumers.step_costs import StepCosts

SLOTS = 3
STEP_TOKENS = 8
CONTEXT_TOKENS = 64
BLOCK_TOKENS = 4
LONGEST = 31  # tokens of the largest request of the machines below


def info(slots: int = SLOTS, step_tokens: int = STEP_TOKENS) -> EngineInfo:
    return EngineInfo("test", slots, CONTEXT_TOKENS, step_tokens, 257, frozenset())


def engine(slots: int = SLOTS, step_tokens: int = STEP_TOKENS) -> EchoEngine:
    """It refuses, slot by slot, every part of a plan that doesn't fit what was planned before."""
    return EchoEngine(slots=slots, max_step_tokens=step_tokens, max_context_tokens=CONTEXT_TOKENS)


class Memory:
    """Blocks of KV memory as an engine takes them, for tokens when they are run; nothing is shared."""

    def __init__(self, engine_info: EngineInfo) -> None:
        self._info = engine_info
        self._tokens: dict[int, int] = {}

    @property
    def held_blocks(self) -> int:
        return sum(map(self._info.blocks_of, self._tokens.values()))

    def run(self, plan: StepPlan) -> None:
        """Raises AssertionError when it runs out."""
        for slot in plan.released:
            self._tokens.pop(slot, None)
        for chunk in plan.prefills:
            self._tokens[chunk.slot] = chunk.start + len(chunk.token_ids)
        for decode in plan.decodes:
            self._tokens[decode.slot] = decode.position + 1
        assert self.held_blocks <= self._info.kv_blocks, "out of memory"


def expected_output(sequence: Sequence, count: int) -> list[int]:
    """What the echo engine makes of it, from its first new token on."""
    prompt = sequence.prefix_token_ids[: len(sequence.prefix_token_ids) - sequence.resumed_tokens]
    return [prompt[(sequence.resumed_tokens + n) % len(prompt)] for n in range(count)]


@dataclass
class Request:
    """A request as its client knows it."""

    sequence: Sequence
    output_tokens: int
    tokens: list[int] = field(default_factory=list)
    end: str | None = None
    was_admitted: bool = False
    waits_again: bool = False


def unguided(plan: StepPlan) -> StepPlan:
    """The same for the echo engine, which knows no grammar."""
    return replace(plan, admitted=tuple(replace(one, sampling=SamplingParams()) for one in plan.admitted))


def step_tokens(plan: StepPlan) -> int:
    return len(plan.decodes) + sum(len(chunk.token_ids) for chunk in plan.prefills)


class SchedulerMachine(RuleBasedStateMachine):
    """Clients, a clock, and an engine whose slots now and then fail, and which now and then has no memory for a step.
    Steps cost so much that some deadlines are urgent and some can't be met."""

    kv_blocks: ClassVar[int] = 0
    resumes_guided: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(
            info(), kv_blocks=self.kv_blocks, block_tokens=BLOCK_TOKENS, resumes_guided=self.resumes_guided
        )
        self.scheduler = Scheduler(self.info, step_costs=StepCosts(1.0, 0.0, 0.1, mean_output_tokens=3))
        self.engine = engine()
        self.memory = Memory(self.info)
        self.requests: dict[str, Request] = {}
        self.now_us = 0
        self.decoding: set[str] = set()

    def live(self) -> list[str]:
        return [request_id for request_id, request in self.requests.items() if request.end is None]

    @rule(
        tenant=st.sampled_from("abc"),
        prompt=st.lists(st.integers(0, 255), min_size=1, max_size=20),
        resumed=st.integers(0, 5),
        output_tokens=st.integers(1, 6),
        patience_us=st.none() | st.integers(0, 15),
        priority=st.integers(0, 1),
        is_guided=st.booleans(),
    )
    def arrives(
        self,
        tenant: str,
        prompt: list[int],
        resumed: int,
        output_tokens: int,
        patience_us: int | None,
        priority: int,
        is_guided: bool,
    ) -> None:
        request_id = f"r{len(self.requests)}"
        sequence = Sequence(
            request_id=request_id,
            tenant=tenant,
            prefix_token_ids=tuple(prompt + [prompt[n % len(prompt)] for n in range(resumed)]),
            resumed_tokens=resumed,
            max_tokens=len(prompt) + resumed + output_tokens,
            deadline_at_us=None if patience_us is None else self.now_us + patience_us,
            priority=priority,
            sampling=SamplingParams(json_schema="{}") if is_guided else SamplingParams(),
        )
        self.requests[request_id] = Request(sequence, output_tokens)
        self.scheduler.add(sequence)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def is_cancelled(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.live()))
        assert self.scheduler.remove(request_id)
        self.leaves(request_id, "cancelled")

    @rule(
        passes_us=st.integers(0, 5),
        broken_slot=st.none() | st.integers(0, SLOTS - 1),
        cancelled_meanwhile=st.none() | st.integers(0, 5),
        is_too_large=st.sampled_from([False, False, False, True]),
    )
    def steps(
        self, passes_us: int, broken_slot: int | None, cancelled_meanwhile: int | None, is_too_large: bool = False
    ) -> None:
        self.now_us += passes_us
        step = self.scheduler.next_step(self.now_us)
        for request_id in step.expired:
            self.leaves(request_id, "timeout")
        assert step_tokens(step.plan) <= STEP_TOKENS
        self.slots_change_hands(step)
        assert len(step.plan.decodes) == len(self.decoding), "a decode was left out"
        self.memory.run(step.plan)
        result = self.engine.execute(unguided(step.plan))
        assert not result.failures, f"the plan doesn't fit the engine: {result.failures}"
        if is_too_large:
            parts = step.plan.prefills + step.plan.decodes
            result = StepResult(deferred=frozenset(part.slot for part in parts))
        elif broken_slot is not None and broken_slot in result.tokens:
            tokens = {slot: token for slot, token in result.tokens.items() if slot != broken_slot}
            result = StepResult(tokens, {broken_slot: "broken"})
        if cancelled_meanwhile is not None and cancelled_meanwhile < len(self.live()):
            request_id = self.live()[cancelled_meanwhile]
            assert self.scheduler.remove(request_id)
            self.leaves(request_id, "cancelled")
        outcome = self.scheduler.take(result)
        if cancelled_meanwhile is None:
            assert len(outcome.tokens) == len(result.tokens)
        for request_id in outcome.failures:
            self.leaves(request_id, "failed")
        for request_id, token in outcome.tokens.items():
            request = self.requests[request_id]
            assert request.end is None, "a token for a request that has left"
            request.tokens.append(token)
            self.decoding.add(request_id)
            if len(request.tokens) == request.output_tokens:
                assert self.scheduler.remove(request_id)
                self.leaves(request_id, "finished")

    def slots_change_hands(self, step: Step) -> None:
        waited = [request for request in self.requests.values() if request.waits_again]
        for request_id in step.preempted:
            request = self.requests[request_id]
            assert request.was_admitted
            assert request.end is None
            request.waits_again = True
            self.decoding.discard(request_id)
        for request_id in step.resumed:
            assert self.requests[request_id].waits_again
            self.requests[request_id].waits_again = False
        for request_id in step.admitted:
            request = self.requests[request_id]
            assert not request.was_admitted, "announced twice"
            request.was_admitted = True
            assert not any(self.goes_before(other, request) for other in waited), "out of order"

    def goes_before(self, other: Request, admitted: Request) -> bool:
        """Whether `other` lost its slot, and waits before whoever of its tenant had none yet."""
        same = (other.sequence.tenant, other.sequence.priority) == (
            admitted.sequence.tenant,
            admitted.sequence.priority,
        )
        return same and other.waits_again and other.end is None and other.sequence.deadline_at_us is None

    def leaves(self, request_id: str, end: str) -> None:
        request = self.requests[request_id]
        assert request.end is None, f"{request_id} ended twice"
        request.end = end
        self.decoding.discard(request_id)
        assert request_id not in self.scheduler
        assert not self.scheduler.remove(request_id)

    @invariant()
    def the_books_agree(self) -> None:
        self.scheduler.check_integrity()
        assert self.scheduler.running_count <= SLOTS
        assert self.scheduler.running_count + self.scheduler.waiting_count == len(self.live())

    @invariant()
    def tokens_are_the_requests_own(self) -> None:
        for request in self.requests.values():
            assert request.tokens == expected_output(request.sequence, len(request.tokens))

    @invariant()
    def nobody_stays_past_the_deadline_of_the_last_step(self) -> None:
        deadline = self.scheduler.next_deadline_at_us
        live = [self.requests[r].sequence.deadline_at_us for r in self.live()]
        assert deadline == min((at for at in live if at is not None), default=None)

    def teardown(self) -> None:
        """Left alone, everything ends, and every slot is free again."""
        for _ in range(1000):
            if not self.live():
                break
            self.steps(1, None, None)
        assert not self.live(), "a request never ends"
        assert self.scheduler.running_count == self.scheduler.waiting_count == 0
        self.engine.execute(self.scheduler.next_step(self.now_us).plan)
        assert self.scheduler.next_step(self.now_us).plan.is_empty
        assert all(
            request.end != "finished" or len(request.tokens) == request.output_tokens
            for request in self.requests.values()
        )


class TightMachine(SchedulerMachine):
    """The largest request fits, and nothing beside it."""

    kv_blocks = -(-LONGEST // BLOCK_TOKENS)


class RoomierMachine(SchedulerMachine):
    """Two large ones fit, or a few small ones, and not all that the slots would take."""

    kv_blocks = 2 * -(-LONGEST // BLOCK_TOKENS) - 1


class KeepingMachine(RoomierMachine):
    """Guided sequences can't go on in another slot, and every step fits."""

    resumes_guided = False

    def steps(
        self, passes_us: int, broken_slot: int | None, cancelled_meanwhile: int | None, is_too_large: bool = False
    ) -> None:
        super().steps(passes_us, broken_slot, cancelled_meanwhile)

    def slots_change_hands(self, step: Step) -> None:
        for request_id in step.preempted:
            request = self.requests[request_id]
            assert self.info.resumes(request.sequence.sampling) or request_id not in self.decoding
        super().slots_change_hands(step)


TestScheduler = SchedulerMachine.TestCase
TestSchedulerOfTightMemory = TightMachine.TestCase
TestSchedulerOfRoomierMemory = RoomierMachine.TestCase
TestSchedulerThatKeepsGuidedInPlace = KeepingMachine.TestCase
TestScheduler.settings = TestSchedulerOfTightMemory.settings = settings(max_examples=60, stateful_step_count=40)
TestSchedulerOfRoomierMemory.settings = TestSchedulerThatKeepsGuidedInPlace.settings = TestScheduler.settings

TENANT_LOAD = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), min_size=1, max_size=6)


class Backlog:
    """Two tenants with always enough waiting, each repeating its own mix of (prompt, output) tokens."""

    def __init__(self, loads: dict[str, list[tuple[int, int]]], weights: dict[str, float], slots: int) -> None:
        self.scheduler, self.echo = Scheduler(info(slots, 16)), engine(slots, 16)
        self.scheduler.set_weights(weights)
        self.slots = slots
        self.loads = loads
        self.weights = weights
        self.prompts: dict[str, int] = {}
        self.remaining: dict[str, int] = {}
        self.sent = dict.fromkeys(loads, 0)
        self.service = dict.fromkeys(loads, 0.0)

    def run_a_step(self, *tenants: str) -> None:
        """One step, before which these tenants have more requests waiting than it can admit."""
        for tenant in tenants:
            while self.scheduler.waiting_by_tenant.get(tenant, 0) <= self.slots:
                prompt, output = self.loads[tenant][self.sent[tenant] % len(self.loads[tenant])]
                request_id = f"{tenant}{self.sent[tenant]}"
                self.sent[tenant] += 1
                self.prompts[request_id], self.remaining[request_id] = prompt, output
                self.scheduler.add(Sequence(request_id, tenant, tuple(range(prompt)), prompt + output))
        step = self.scheduler.next_step(0)
        for request_id in step.admitted:
            self.serve(request_id, self.prompts[request_id] * DEFAULT_COSTS.input)
        for request_id in self.scheduler.take(self.echo.execute(step.plan)).tokens:
            self.serve(request_id, DEFAULT_COSTS.output)
            self.remaining[request_id] -= 1
            if not self.remaining[request_id]:
                self.scheduler.remove(request_id)

    def serve(self, request_id: str, cost: float) -> None:
        self.service[request_id[0]] += cost / self.weights[request_id[0]]


WEIGHT = st.sampled_from([1.0, 2.0, 3.0])


@settings(max_examples=60)
@given(
    load_a=TENANT_LOAD,
    load_b=TENANT_LOAD,
    weight_a=WEIGHT,
    weight_b=WEIGHT,
    head_start=st.integers(0, 30),
    slots=st.integers(1, 4),
)
def test_service_of_two_backlogged_tenants_never_differs_by_more_than_the_bound(
    load_a: list[tuple[int, int]],
    load_b: list[tuple[int, int]],
    weight_a: float,
    weight_b: float,
    head_start: int,
    slots: int,
) -> None:
    """One may have had the machine to itself before: that counts neither for nor against it.

    U is the paper's max(w_in L_input, w_out M), with M the tokens that a batch may hold, prompts and all. By its
    theorem 4.4 the counters differ by at most U, and the service received since both wait by at most 2 U. Who has
    little may go before who has much and was served less (`Precedence`): that stays within it too.
    """
    backlog = Backlog({"a": load_a, "b": load_b}, {"a": weight_a, "b": weight_b}, slots)
    for _ in range(head_start):
        backlog.run_a_step("a")
    longest_prompt = max(prompt for prompt, _ in load_a + load_b)
    in_batch = slots * max(prompt + output for prompt, output in load_a + load_b)
    most = max(DEFAULT_COSTS.input * longest_prompt, DEFAULT_COSTS.output * in_batch)
    bound = most / min(weight_a, weight_b) + 1e-9
    backlog.service = {"a": 0.0, "b": 0.0}
    for _ in range(80):
        backlog.run_a_step("a", "b")
        assert abs(backlog.scheduler.served("a") - backlog.scheduler.served("b")) <= bound
        assert abs(backlog.service["a"] - backlog.service["b"]) <= 2 * bound
    assert min(backlog.service.values()) > 0


def test_service_follows_the_weights_in_the_long_run() -> None:
    """Tenant a sends short prompts with long answers, b the other way round; a is entitled to three times as much."""
    backlog = Backlog({"a": [(2, 6)], "b": [(14, 1)]}, {"a": 3.0, "b": 1.0}, slots=4)
    for _ in range(2000):
        backlog.run_a_step("a", "b")
    assert backlog.service["a"] == pytest.approx(backlog.service["b"], rel=0.02)


def test_a_step_too_small_for_all_slots_to_decode_is_refused() -> None:
    with pytest.raises(ValueError, match="max_step_tokens is 3: at least one for each of 4 slots"):
        Scheduler(info(slots=4, step_tokens=3))
