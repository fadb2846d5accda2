"""The engine loop and JSON schemas: a request waits for its own while others run, and may be gone when it is ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eventlog.clock import now_us
from gpu_consumers.engine import PreparesSchemas
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.generation import Model
from models.tokenizer import ByteTokenizer
from schemas.events import GenerationFailed, GenerationFinished
from schemas.ids import new_request_id
from tests.lone_worker import LoneWorker
from tests.unit.gpu_consumers.test_generation import ORDER

MODEL = Model(ByteTokenizer(), frozenset())
PLAIN, GUIDED = (
    replace(
        ORDER, request_id=new_request_id(now_ms=1, partition=0, entropy=n), prompt_token_ids=tuple(b"abcd"),
        max_output_tokens=30, stop=(), deadline_at_us=None, priority=0, seed=n,
    )
    for n in range(2)
)  # fmt: skip
GUIDED = replace(GUIDED, json_schema='{"type": "object"}')


class Preparing(EchoEngine):
    """An echo that takes its time with schemas, and then obeys none: what was asked, and who is to be told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Callable[[str | None], None]]] = []

    def prepare_schema(self, json_schema: str, ready: Callable[[str | None], None]) -> object:
        self.asked.append((json_schema, ready))
        return ready

    def ready(self, refusal: str | None) -> None:
        for _, tell in self.asked:
            tell(refusal)


def worker_of(engine: EchoEngine) -> LoneWorker:
    return LoneWorker(engine, MODEL)


def test_a_request_does_not_run_before_its_schema_is_ready_and_others_do() -> None:
    engine = Preparing()
    assert isinstance(engine, PreparesSchemas)
    worker = worker_of(engine)

    def look(step: int) -> None:
        assert (GUIDED.request_id in worker.log.events) == (step > 10)
        if step == 10:
            assert [schema for schema, _ in engine.asked] == [GUIDED.json_schema]
            engine.ready(None)

    worker.before_step = look
    log = worker.run([GUIDED, PLAIN])
    assert isinstance(log.terminal(PLAIN), GenerationFinished)
    assert "JSON schema" in str(log.terminal(GUIDED)), "it came to the engine, and this one refuses it"


def test_a_schema_that_is_refused_ends_its_request_with_the_reason() -> None:
    engine = Preparing()
    worker = worker_of(engine)
    worker.before_step = lambda step: engine.ready("it is odd") if step == 5 else None
    log = worker.run([GUIDED, PLAIN])
    end = log.terminal(GUIDED)
    assert isinstance(end, GenerationFailed)
    assert (end.status, end.code) == (400, "invalid_json_schema")
    assert end.message == "no answer can be held to this JSON schema: it is odd"
    assert isinstance(log.terminal(PLAIN), GenerationFinished)


def test_a_request_that_is_cancelled_before_its_schema_is_ready_is_gone_when_it_is() -> None:
    engine = Preparing()
    worker = worker_of(engine)
    work = worker.take(GUIDED)

    def look(step: int) -> None:
        if step == 3:
            worker.cancel(work)
        elif step == 6:
            engine.ready(None)

    worker.before_step = look
    log = worker.run([PLAIN])
    end = log.terminal(GUIDED)
    assert isinstance(end, GenerationFinished)
    assert (end.finish_reason, end.output_tokens) == ("cancelled", 0)
    assert len(worker.done) == 2


def test_a_request_ends_at_its_deadline_though_its_schema_is_not_ready() -> None:
    hurried = replace(GUIDED, deadline_at_us=now_us() + 20_000)
    log = worker_of(Preparing()).run([hurried])
    end = log.terminal(hurried)
    assert isinstance(end, GenerationFinished)
    assert (end.finish_reason, end.output_tokens) == ("timeout", 0)


def test_a_worker_with_nothing_else_to_do_waits_for_a_schema_and_goes_on() -> None:
    class AtOnce(Preparing):
        def prepare_schema(self, json_schema: str, ready: Callable[[str | None], None]) -> object:
            ready(None)
            return None

    log = worker_of(AtOnce()).run([GUIDED])
    assert isinstance(log.terminal(GUIDED), GenerationFailed)


def test_an_engine_that_prepares_nothing_is_not_asked() -> None:
    log = worker_of(EchoEngine()).run([GUIDED, PLAIN])
    end = log.terminal(GUIDED)
    assert isinstance(end, GenerationFailed)
    assert end.message == "the echo engine says the prompt back: it can hold no answer to a JSON schema"
