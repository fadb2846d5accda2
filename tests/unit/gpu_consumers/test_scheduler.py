from dataclasses import replace

import pytest

from gpu_consumers.engine import EngineInfo
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan, StepResult
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence, why_not_servable
from gpu_consumers.step import Step
from gpu_consumers.step_costs import StepCosts

INFO = EngineInfo("test", 2, 64, 8, 257, frozenset())


def sequence(request_id: str, tokens: int, **fields: object) -> Sequence:
    return Sequence(request_id, "t", tuple(range(tokens)), tokens + 8, **fields)  # type: ignore[arg-type]


def test_one_request_from_its_first_chunk_to_its_last_token() -> None:
    scheduler = Scheduler(INFO)
    sampling = SamplingParams(temperature=0.5, seed=7)
    scheduler.add(sequence("r", 10, sampling=sampling, resumed_tokens=3))
    step = scheduler.next_step(0)
    assert step.admitted == {"r": 0}
    assert step.plan == StepPlan(
        admitted=(Admission(0, sampling, 18, 3, tenant="t", prompt_tokens=7),),
        prefills=(PrefillChunk(0, tuple(range(8)), 0, last=False),),
    )
    assert scheduler.take(StepResult()).tokens == {}
    assert scheduler.next_step(0).plan == StepPlan(prefills=(PrefillChunk(0, (8, 9), 8, last=True),))
    assert scheduler.take(StepResult({0: 42})).tokens == {"r": 42}
    assert scheduler.next_step(0).plan == StepPlan(decodes=(Decode(0, 42, 10),))
    assert scheduler.take(StepResult({0: 43})).tokens == {"r": 43}
    assert scheduler.remove("r")
    assert scheduler.next_step(0).plan == StepPlan(released=(0,))
    assert scheduler.next_step(0).plan.is_empty


def test_a_long_prompt_is_prefilled_beside_decodes_that_run_in_every_step() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("short", 2))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 1}))
    scheduler.add(sequence("long", 20))
    chunks = []
    for n in range(3):
        plan = scheduler.next_step(0).plan
        assert [decode.slot for decode in plan.decodes] == [0]
        chunks += [len(chunk.token_ids) for chunk in plan.prefills]
        scheduler.take(StepResult({0: n, **({1: 9} if n == 2 else {})}))
    assert chunks == [7, 7, 6]
    assert len(scheduler.next_step(0).plan.decodes) == 2


def test_a_slot_goes_from_one_request_to_the_next_within_one_plan() -> None:
    scheduler = Scheduler(EngineInfo("test", 1, 64, 8, 257, frozenset()))
    scheduler.add(sequence("first", 2))
    scheduler.add(sequence("second", 2))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 1}))
    assert (scheduler.running_count, scheduler.waiting_count) == (1, 1)
    scheduler.remove("first")
    plan = scheduler.next_step(0).plan
    assert plan.released == (0,)
    assert [admission.slot for admission in plan.admitted] == [0]


def test_a_deadline_takes_a_waiting_and_a_running_request_out() -> None:
    scheduler = Scheduler(EngineInfo("test", 1, 64, 8, 257, frozenset()))
    scheduler.add(sequence("running", 2, deadline_at_us=50))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 1}))
    scheduler.add(sequence("waiting", 2, deadline_at_us=40))
    step = scheduler.next_step(50)
    assert step.expired == ("waiting", "running")
    assert step.plan == StepPlan(released=(0,))
    assert "running" not in scheduler


def test_a_failed_slot_is_released_and_a_slot_without_an_answer_has_failed() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("broken", 2))
    scheduler.add(sequence("forgotten", 2))
    scheduler.next_step(0)
    outcome = scheduler.take(StepResult({}, {0: "NaN"}))
    assert outcome.failures == {"broken": "NaN", "forgotten": "the engine gave no token for it"}
    assert sorted(scheduler.next_step(0).plan.released) == [0, 1]


def test_a_slot_that_fails_while_it_owes_nothing_has_failed_too() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("long", 20))
    scheduler.next_step(0)
    assert scheduler.take(StepResult({}, {0: "token id out of range"})).failures == {"long": "token id out of range"}


def test_a_request_that_is_here_already_or_has_no_tokens_is_refused() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("r", 2))
    with pytest.raises(ValueError, match="r is here already"):
        scheduler.add(sequence("r", 2))
    scheduler.next_step(0)
    with pytest.raises(ValueError, match="r is here already"):
        scheduler.add(sequence("r", 2))
    with pytest.raises(ValueError, match="empty has no tokens to prefill"):
        scheduler.add(sequence("empty", 0))


def test_what_is_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="r may need more than the 2 KV blocks there are"):
        Scheduler(replace(INFO, kv_blocks=2, block_tokens=4)).add(sequence("r", 2))


def test_the_integrity_check_sees_a_slot_that_leaked() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("r", 2))
    scheduler.next_step(0)
    scheduler.check_integrity()
    scheduler._batch._running.clear()
    with pytest.raises(AssertionError, match="a slot leaked or is shared"):
        scheduler.check_integrity()


@pytest.mark.parametrize(
    ("unservable", "why"),
    [
        (Sequence("r", "t", (), 5), "the prompt is empty"),
        (Sequence("r", "t", (1, 2), 5, resumed_tokens=2), "the prompt is empty"),
        (Sequence("r", "t", (1,), 65), "may reach 65 tokens, and this worker holds 64"),
        (Sequence("r", "t", (1, 257), 5), "token id 257 is outside the model's vocabulary of 257"),
        (Sequence("r", "t", (-1, 2), 5), "token id -1 is outside"),
        (Sequence("r", "t", (1,), 33), "may reach 33 tokens, and the memory of this worker holds 32"),
    ],
)
def test_what_the_engine_can_never_run_has_a_reason(unservable: Sequence, why: str) -> None:
    reason = why_not_servable(unservable, replace(INFO, kv_blocks=8, block_tokens=4))
    assert reason is not None
    assert why in reason


def test_what_just_fits_is_servable() -> None:
    assert why_not_servable(Sequence("r", "t", (0, 256), 64, resumed_tokens=1), INFO) is None


def test_cached_tokens_are_neither_run_nor_charged() -> None:
    scheduler = Scheduler(INFO, cached_tokens=lambda tenant, token_ids, adapter: 6 if tenant == "t" else 0)
    scheduler.add(sequence("r", 10))
    step = scheduler.next_step(0)
    assert step.admitted == {"r": 6}
    assert step.plan.admitted[0].cached_token_ids == tuple(range(6))
    assert step.plan.prefills == (PrefillChunk(0, (6, 7, 8, 9), 6, last=True),)
    assert scheduler.served("t") == 4


def test_a_lower_class_gives_its_slot_up_and_goes_on_exactly_where_it_was() -> None:
    scheduler = Scheduler(EngineInfo("test", 1, 64, 8, 257, frozenset()))
    sampling = SamplingParams(temperature=1.0, seed=3)
    scheduler.add(sequence("low", 2, sampling=sampling))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 50}))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 51}))
    scheduler.add(sequence("also low", 2))
    scheduler.add(sequence("high", 3, priority=1))
    step = scheduler.next_step(0)
    assert (step.admitted, step.resumed, step.preempted) == ({"high": 0}, {}, ("low",))
    assert step.plan == StepPlan(
        released=(0,),
        admitted=(Admission(0, SamplingParams(), 11, tenant="t", prompt_tokens=3),),
        prefills=(PrefillChunk(0, (0, 1, 2), 0, last=True),),
    )
    scheduler.take(StepResult({0: 9}))
    scheduler.remove("high")
    served = scheduler.served("t")
    step = scheduler.next_step(0)
    assert (step.admitted, step.resumed, step.preempted) == ({}, {"low": 0}, ())
    assert step.plan == StepPlan(
        released=(0,),
        admitted=(Admission(0, sampling, 10, 2, tenant="t", prompt_tokens=2),),
        prefills=(PrefillChunk(0, (0, 1, 50, 51), 0, last=True),),
    )
    assert scheduler.served("t") == served, "its input was charged twice"
    assert scheduler.take(StepResult({0: 52})).tokens == {"low": 52}
    assert scheduler.next_step(0).plan.decodes == (Decode(0, 52, 4),)


def test_what_was_preempted_keeps_its_deadline_and_can_be_removed() -> None:
    scheduler = Scheduler(EngineInfo("test", 1, 64, 8, 257, frozenset()))
    scheduler.add(sequence("low", 2, deadline_at_us=100))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 50}))
    scheduler.add(sequence("high", 3, priority=1))
    assert scheduler.next_step(1).preempted == ("low",)
    scheduler.take(StepResult({0: 50}))
    assert (scheduler.waiting_count, scheduler.running_count, scheduler.next_deadline_at_us) == (1, 1, 100)
    assert scheduler.next_step(100).expired == ("low",)
    scheduler.check_integrity()
    assert scheduler.next_deadline_at_us is None


def of(tenant: str, request_id: str, tokens: int = 2) -> Sequence:
    return Sequence(request_id, tenant, tuple(range(tokens)), tokens + 20)


def flooded(slots: int = 4, step_tokens: int = 32) -> Scheduler:
    """A flood decodes in every slot, and more of it waits."""
    scheduler = Scheduler(EngineInfo("test", slots, 64, step_tokens, 257, frozenset()))
    for n in range(2 * slots):
        scheduler.add(of("flood", f"f{n}"))
    scheduler.next_step(0)
    scheduler.take(StepResult(dict.fromkeys(range(slots), 7)))
    return scheduler


def test_a_newcomer_gets_a_slot_of_a_flood_in_the_very_next_step_and_what_lost_it_is_next() -> None:
    scheduler = flooded()
    scheduler.add(of("light", "l0", 20))
    step = scheduler.next_step(1)
    assert (step.admitted, len(step.preempted)) == ({"l0": 0}, 1)
    assert [len(chunk.token_ids) for chunk in step.plan.prefills] == [20]
    assert len(step.plan.decodes) == 3
    scheduler.take(yielded(step))
    scheduler.remove("l0")
    assert tuple(scheduler.next_step(2).resumed) == step.preempted


def test_two_tenants_that_both_have_slots_dont_take_them_from_each_other() -> None:
    scheduler = flooded()
    for n in range(8):
        scheduler.add(of("light", f"l{n}"))
    preempted = 0
    for now_us in range(6):
        step = scheduler.next_step(now_us)
        preempted += len(step.preempted)
        scheduler.take(yielded(step))
    assert preempted == 1, "half of its share is enough"


def yielded(step: Step) -> StepResult:
    """A token of every slot that owes one."""
    last = [chunk.slot for chunk in step.plan.prefills if chunk.last]
    return StepResult(dict.fromkeys(last + [decode.slot for decode in step.plan.decodes], 7))


def prefilled(step: Step) -> dict[int, int]:
    return {chunk.slot: len(chunk.token_ids) for chunk in step.plan.prefills}


def test_while_others_are_around_a_flood_prefills_in_bites_and_for_a_while_none_beside_a_newcomer() -> None:
    scheduler = Scheduler(EngineInfo("test", 4, 512, 64, 257, frozenset()))
    for n in range(4):
        scheduler.add(of("flood", f"f{n}", 30))
    alone = scheduler.next_step(0)
    assert sum(prefilled(alone).values()) == 64
    scheduler.take(yielded(alone))
    scheduler.add(of("light", "l0", 400))
    steps = []
    for now_us in range(1, 6):
        steps.append(scheduler.next_step(now_us))
        scheduler.take(yielded(steps[-1]))
    (slot,) = [admission.slot for admission in steps[0].plan.admitted]
    bites = [sum(tokens for at, tokens in prefilled(step).items() if at != slot) for step in steps]
    assert bites == [0, 0, 0, 8, 0]
    assert all(prefilled(step)[slot] >= 50 for step in steps)


def test_a_flood_that_bites_have_slowed_down_to_its_share_keeps_to_bites() -> None:
    """Or whoever came then would wait for a whole step of it."""
    scheduler = Scheduler(EngineInfo("test", 4, 512, 64, 257, frozenset()))
    for n in range(9):
        scheduler.add(of("flood", f"f{n}", 30))
    scheduler.add(of("light", "l0"))
    step = scheduler.next_step(0)
    while scheduler.running_count > 2:
        scheduler.take(yielded(step))
        for running in list(scheduler._batch):
            if running.decodes:
                scheduler.remove(running.sequence.request_id)
        step = scheduler.next_step(1)
    assert scheduler.waiting_by_tenant["flood"] > 2
    assert sum(prefilled(step).values()) == 8, "an eighth of a step"


def test_a_baseline_neither_preempts_nor_bites() -> None:
    scheduler = Scheduler(EngineInfo("test", 1, 64, 8, 257, frozenset()), shares_slots=False)
    scheduler.add(sequence("low", 2))
    scheduler.next_step(0)
    scheduler.take(StepResult({0: 1}))
    scheduler.add(sequence("high", 2, priority=1))
    step = scheduler.next_step(0)
    assert (step.preempted, step.admitted) == ((), {})


def test_what_cant_meet_its_deadline_lets_what_can_go_first_and_still_runs_when_nothing_else_does() -> None:
    costs = StepCosts(step_us=10, decode_us=0, prefill_token_us=1, mean_output_tokens=4)
    scheduler = Scheduler(EngineInfo("test", 1, 64, 8, 257, frozenset()), step_costs=costs)
    scheduler.add(sequence("hopeless", 2, deadline_at_us=41))
    scheduler.add(sequence("feasible", 2, deadline_at_us=42))
    assert tuple(scheduler.next_step(0).admitted) == ("feasible",)
    scheduler.take(StepResult({0: 1}))
    scheduler.remove("feasible")
    assert tuple(scheduler.next_step(10).admitted) == ("hopeless",)
    scheduler.take(StepResult({0: 1}))
    assert scheduler.next_step(41).expired == ("hopeless",)


TIGHT = EngineInfo("test", 4, 64, 8, 257, frozenset(), kv_blocks=8, block_tokens=4)


def test_slots_are_given_as_far_as_memory_goes_and_one_that_outgrows_it_goes_on_later() -> None:
    scheduler = Scheduler(TIGHT)
    for name in ("first", "second", "third"):
        scheduler.add(Sequence(name, "t", tuple(range(8)), 8 + 12))
    step = scheduler.next_step(0)
    assert (step.admitted, scheduler.waiting_count, scheduler.held_blocks) == ({"first": 0}, 2, 2)
    lost: list[tuple[str, ...]] = []
    for now_us in range(30):
        scheduler.take(yielded(step))
        step = scheduler.next_step(now_us)
        lost += [step.preempted] if step.preempted else []
        assert scheduler.held_blocks <= 8
        for running in list(scheduler._batch):
            if len(running.sequence.prefix_token_ids) + len(running.output_token_ids) > 20:
                scheduler.remove(running.sequence.request_id)
    assert lost == [("second",), ("third",)], "whoever came first is never the one"


def test_where_only_guided_sequences_run_that_can_not_go_on_elsewhere_who_comes_waits_and_all_end() -> None:
    scheduler = Scheduler(replace(TIGHT, max_step_tokens=32, resumes_guided=False))
    for name in ("first", "second", "third"):
        scheduler.add(Sequence(name, "t", tuple(range(8)), 16, SamplingParams(json_schema="{}")))
    admitted: list[str] = []
    for now_us in range(40):
        step = scheduler.next_step(now_us)
        admitted += step.admitted
        assert not step.preempted
        scheduler.take(yielded(step))
        if now_us == 0:
            assert (scheduler.running_count, scheduler.held_blocks) == (2, 8), "all that they may need"
            scheduler.add(Sequence("urgent", "u", (1,), 8, priority=1))
        for running in list(scheduler._batch):
            if len(running.sequence.prefix_token_ids) + len(running.output_token_ids) == running.sequence.max_tokens:
                scheduler.remove(running.sequence.request_id)
    assert admitted == ["first", "second", "urgent", "third"]
    assert scheduler.running_count == scheduler.waiting_count == 0


def test_a_step_that_did_not_fit_is_run_again_in_smaller_ones() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("r", 8))
    scheduler.add(sequence("s", 8))
    scheduler.next_step(0)
    assert scheduler.take(StepResult(deferred=frozenset({0}))).failures == {}
    step = scheduler.next_step(1)
    assert (step.preempted, step.resumed) == (("r",), {"r": 0})
    assert step.plan.released == (0,)
    assert prefilled(step) == {0: 4}, "half of the step that was too large"
    scheduler.check_integrity()


def test_a_sequence_that_was_deferred_may_leave_before_the_next_step() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("r", 8))
    scheduler.next_step(0)
    scheduler.take(StepResult(deferred=frozenset({0})))
    assert scheduler.remove("r")
    step = scheduler.next_step(1)
    assert (step.preempted, step.plan) == ((), StepPlan(released=(0,)))


def test_one_token_that_does_not_fit_is_the_end_of_its_sequence() -> None:
    scheduler = Scheduler(INFO)
    scheduler.add(sequence("r", 1))
    scheduler.next_step(0)
    outcome = scheduler.take(StepResult(deferred=frozenset({0})))
    assert outcome.failures == {"r": "not even one token of it fits into the engine's memory"}
    assert "r" not in scheduler
