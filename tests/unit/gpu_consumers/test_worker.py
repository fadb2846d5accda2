"""The engine loop: a bad request ends alone, its neighbours get what they would have got anyway; and how it leaves."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from safetensors.torch import load_file, save_file

from eventlog.clock import monotonic, now_us
from gpu_consumers.engine import Engine
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.errors import EngineFailedError
from gpu_consumers.generation import Model
from gpu_consumers.plan import StepPlan, StepResult
from gpu_consumers.step_costs import StepCosts
from gpu_consumers.work import Leave, Weights
from models.tokenizer import ByteTokenizer, open_tokenizer
from schemas.events import GenerationFailed, GenerationFinished, RequestRouted, TokensGenerated, WorkerReported
from schemas.ids import new_request_id
from schemas.request_events import LogitBias
from tests.lone_worker import Log, LoneWorker
from tests.tiny_model import VOCABULARY_SIZE, make_tiny_model
from tests.unit.gpu_consumers.test_generation import ORDER

POISON = 300
"""A token whose embedding is no number in this file's model."""

NEIGHBOURS = tuple(
    replace(
        ORDER, request_id=new_request_id(now_ms=1, partition=n % 2, entropy=n), tenant=f"t{n % 2}", stop=(),
        prompt_token_ids=tuple(range(10 + n, 30 + 2 * n)), max_output_tokens=24 + n, priority=0, deadline_at_us=None,
        temperature=0.8 * (n % 2), seed=n,
    )
    for n in range(4)
)  # fmt: skip
BAD = replace(NEIGHBOURS[0], request_id=new_request_id(now_ms=1, partition=1, entropy=99), prompt_token_ids=(5, 6, 7))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    weights = load_file(directory / "model.safetensors")
    weights["model.embed_tokens.weight"][POISON] = float("nan")
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="module")
def model(directory: Path) -> Model:
    return Model(open_tokenizer(str(directory)), frozenset())


def tiny(directory: Path) -> Engine:
    return load_torch_engine(
        directory, dtype="float32", slots=5, max_context_tokens=128, max_step_tokens=32, prefix_cache_bytes=1 << 20
    )


@pytest.fixture(scope="module")
def alone(directory: Path, model: Model) -> Log:
    """What the neighbours get without anybody bad."""
    return LoneWorker(tiny(directory), model).run(NEIGHBOURS)


def assert_the_same(log: Log, alone: Log) -> None:
    """Each neighbour has the same tokens, text and end, in events that say the same."""
    for order in NEIGHBOURS:
        mine, others = log.answers[order.request_id], alone.answers[order.request_id]
        assert (mine.token_ids, mine.text) == (others.token_ids, others.text)
        end = log.terminal(order)
        assert isinstance(end, GenerationFinished)
        assert (end.finish_reason, end.output_tokens) == ("length", order.max_output_tokens)


def failed(log: Log, order: RequestRouted) -> GenerationFailed:
    end = log.terminal(order)
    assert isinstance(end, GenerationFailed)
    return end


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_token_ids": (5, VOCABULARY_SIZE)}, f"token id {VOCABULARY_SIZE} is outside"),
        ({"prompt_token_ids": (5, -1)}, "token id -1 is outside"),
        ({"prompt_token_ids": ()}, "the prompt is empty"),
        ({"prompt_token_ids": tuple(range(120)), "max_output_tokens": 9}, "129 tokens, and this worker holds 128"),
    ],
)
def test_a_request_that_can_never_run_is_refused_and_its_neighbours_are_the_same(
    directory: Path, model: Model, alone: Log, change: dict[str, object], why: str
) -> None:
    bad = replace(BAD, **change)  # type: ignore[arg-type]
    worker = LoneWorker(tiny(directory), model)
    log = worker.run([NEIGHBOURS[0], bad, *NEIGHBOURS[1:]])
    end = failed(log, bad)
    assert (end.status, end.code) == (422, "not_servable")
    assert why in end.message
    assert_the_same(log, alone)
    assert len(worker.done) == len(log.settled) == 5


def counted(worker: LoneWorker, name: str) -> float:
    """A metric of the worker's."""
    return worker.metrics.registry.get_sample_value(f"headrace:{name}", {"deployment": "d", "worker": "w"}) or 0.0


def test_with_memory_for_one_context_answers_take_turns_and_are_the_same(
    directory: Path, model: Model, alone: Log
) -> None:
    """Two blocks of 64 tokens hold one whole context."""
    block_bytes = 2 * 2 * 2 * 64 * 16 * 4
    engine = load_torch_engine(
        directory, dtype="float32", slots=5, max_context_tokens=128, max_step_tokens=32, kv_cache_bytes=2 * block_bytes
    )
    worker = LoneWorker(engine, model)
    used: list[float] = []
    worker.before_step = lambda _: used.append(counted(worker, "kv_cache_usage_perc"))
    assert_the_same(worker.run(NEIGHBOURS), alone)
    assert counted(worker, "kv_cache_blocks") == 2
    assert max(used) == 1.0


class _OnceTooLarge:
    """An engine that has no memory for its third step, of whatever it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._steps = engine, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def execute(self, plan: StepPlan) -> StepResult:
        self._steps += 1
        result = self._engine.execute(plan)
        if self._steps != 3:
            return result
        return StepResult(deferred=frozenset(part.slot for part in plan.prefills + plan.decodes))


def test_a_step_that_memory_ran_out_in_is_made_up_for_and_the_answers_are_the_same(
    directory: Path, model: Model, alone: Log
) -> None:
    worker = LoneWorker(cast(Engine, _OnceTooLarge(tiny(directory))), model)
    assert_the_same(worker.run(NEIGHBOURS), alone)
    assert counted(worker, "engine_steps_deferred_total") == 1
    assert counted(worker, "num_preemptions_total") == counted(worker, "num_resumptions_total") > 0


@pytest.mark.parametrize("prompt", [(5, POISON, 7), (*range(60), POISON)])
def test_a_request_whose_logits_are_no_numbers_fails_and_its_neighbours_are_the_same(
    directory: Path, model: Model, alone: Log, prompt: tuple[int, ...]
) -> None:
    bad = replace(BAD, prompt_token_ids=prompt)
    log = LoneWorker(tiny(directory), model).run([*NEIGHBOURS[:2], bad, *NEIGHBOURS[2:]])
    end = failed(log, bad)
    assert (end.status, end.code) == (500, "generation_failed")
    assert_the_same(log, alone)


def test_a_request_that_turns_to_no_numbers_in_mid_answer_fails_with_what_it_had(
    directory: Path, model: Model, alone: Log
) -> None:
    """Its first tokens are sound; then a bias makes it say the token that has no embedding."""
    bad = replace(BAD, logit_bias=(LogitBias(token_id=POISON, bias=100.0),), max_output_tokens=20)
    log = LoneWorker(tiny(directory), model).run([bad, *NEIGHBOURS])
    assert failed(log, bad).code == "generation_failed"
    assert log.answers[bad.request_id].token_ids == [POISON]
    assert_the_same(log, alone)


def test_a_stop_string_that_never_comes_to_its_end_is_given_out_with_the_last_token(
    directory: Path, model: Model, alone: Log
) -> None:
    """The whole answer may be its beginning, so all of it is held back until there is no more."""
    plain = LoneWorker(tiny(directory), model).run([replace(BAD, max_output_tokens=20)]).answers[BAD.request_id].text
    endless = replace(BAD, max_output_tokens=20, stop=(plain + "never",))
    log = LoneWorker(tiny(directory), model).run([endless, *NEIGHBOURS])
    end = log.terminal(endless)
    assert isinstance(end, GenerationFinished)
    assert (end.finish_reason, log.answers[endless.request_id].text) == ("length", plain)
    pieces = [e.text for e in log.events[endless.request_id] if isinstance(e, TokensGenerated) and e.text]
    assert pieces == [plain]
    assert_the_same(log, alone)


@pytest.mark.parametrize("step", [0, 2, 7, 15])
def test_a_cancel_at_any_step_gives_one_end_and_the_neighbours_are_the_same(
    directory: Path, model: Model, alone: Log, step: int
) -> None:
    worker = LoneWorker(tiny(directory), model)
    bad = replace(BAD, prompt_token_ids=tuple(range(70)), max_output_tokens=50)
    work = worker.take(bad)

    def cancel(now: int) -> None:
        if now == step:
            worker.cancel(work)

    worker.before_step = cancel
    log = worker.run(NEIGHBOURS)
    end = log.terminal(bad)
    assert isinstance(end, GenerationFinished)
    assert end.finish_reason == "cancelled"
    assert end.output_tokens == len(log.answers[bad.request_id].token_ids) < 50
    assert_the_same(log, alone)


def test_a_deadline_in_mid_answer_gives_one_end_and_the_neighbours_are_the_same(
    directory: Path, model: Model, alone: Log
) -> None:
    worker = LoneWorker(tiny(directory), model)
    late = replace(BAD, max_output_tokens=100, deadline_at_us=now_us() + 500_000)

    def outlast_the_deadline(now: int) -> None:
        if now == 8:
            assert late.deadline_at_us is not None
            threading.Event().wait(max(0, late.deadline_at_us - now_us()) / 1e6)

    worker.before_step = outlast_the_deadline
    log = worker.run([late, *NEIGHBOURS])
    end = log.terminal(late)
    assert isinstance(end, GenerationFinished)
    assert end.finish_reason == "timeout"
    assert end.output_tokens == len(log.answers[late.request_id].token_ids) < 10
    assert_the_same(log, alone)


LONG = tuple(
    replace(
        ORDER, request_id=new_request_id(now_ms=1, partition=n % 2, entropy=n), prompt_token_ids=tuple(b"echo "),
        max_output_tokens=most, stop=(), deadline_at_us=None,
    )
    for n, most in enumerate((30, 60, 1_000, 2_000, 10))
)  # fmt: skip
"""The last waits: there are four slots."""
ECHO = Model(ByteTokenizer(), frozenset())
TEN_MS_A_STEP = StepCosts(step_us=10_000.0, decode_us=0.0, prefill_token_us=0.0)


def leaving(seconds: float, *, at_step: int, costs: StepCosts | None = TEN_MS_A_STEP) -> LoneWorker:
    """A worker of four slots that is told to leave before this step."""
    worker = LoneWorker(EchoEngine(slots=4), ECHO, telemetry_seconds=3600.0)
    if costs is not None:
        worker.measured(costs)

    def leave(now: int) -> None:
        if now == at_step:
            worker.inbox.put(Leave(monotonic() + seconds))
            worker.take(replace(LONG[4], request_id=new_request_id(now_ms=1, partition=0, entropy=77)))

    worker.before_step = leave
    return worker


def test_a_worker_that_leaves_finishes_what_is_short_and_leaves_the_rest_unended() -> None:
    log = leaving(0.9, at_step=5).run(LONG)
    for order in LONG[:2]:
        end = log.terminal(order)
        assert isinstance(end, GenerationFinished)
        assert (end.finish_reason, end.output_tokens) == ("length", order.max_output_tokens)
    for order in LONG[2:4]:
        tokens = log.answers[order.request_id].token_ids
        assert 55 < len(tokens) < 100
        assert log.answers[order.request_id].terminal is None
    assert len(log.events) == 4, "what had no slot, or came later, was not begun with"


def test_a_worker_that_leaves_waits_for_nobody_who_cant_be_ready_in_time() -> None:
    log = leaving(0.2, at_step=5).run(LONG)
    assert not log.settled
    assert {len(log.answers[order.request_id].token_ids) for order in LONG[:4]} == {6}


def test_a_worker_reports_that_it_drains_as_soon_as_it_does() -> None:
    reports = leaving(0.9, at_step=5).run(LONG).reports
    assert [report.state for report in reports if isinstance(report, WorkerReported)] == [
        "running", "draining", "stopping",
    ]  # fmt: skip


def test_a_worker_that_does_not_know_what_steps_cost_goes_by_its_newest_ones() -> None:
    log = leaving(60.0, at_step=5, costs=None).run(LONG)
    assert sorted(end.request_id for end in log.settled) == sorted(order.request_id for order in LONG[:4])


def test_a_tenant_of_more_weight_is_served_more_often_from_when_the_worker_hears_of_it() -> None:
    ids = [new_request_id(now_ms=1, partition=0, entropy=n) for n in range(8)]
    tenants = dict(zip(ids, "abababab", strict=True))

    def served(*messages: Weights) -> str:
        worker = LoneWorker(EchoEngine(slots=1), ECHO)
        for message in messages:
            worker.inbox.put(message)
        worker.run(replace(LONG[0], request_id=request_id, tenant=tenant) for request_id, tenant in tenants.items())
        return "".join(tenants[request_id] for request_id in worker.done)

    assert served() == "abababab"
    assert served(Weights({"b": 100.0})) == "abbbbaaa"


def test_an_idle_worker_leaves_at_once() -> None:
    worker = LoneWorker(EchoEngine(slots=4), ECHO)
    worker.inbox.put(Leave(monotonic() + 3600.0))
    assert not worker.run().events


def test_an_engine_that_breaks_ends_the_worker_with_a_reason_and_no_request() -> None:
    worker = LoneWorker(EchoEngine(slots=4), ECHO)

    def breaks(now: int) -> None:
        if now == 3:
            raise RuntimeError("out of memory")

    worker.before_step = breaks
    with pytest.raises(EngineFailedError, match="RuntimeError: out of memory; 5 unfinished requests"):
        worker.run(LONG)
    assert not worker.log.settled
