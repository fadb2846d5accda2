from __future__ import annotations

from collections.abc import Callable

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.entrance import Entered, Entrance
from gpu_consumers.plan import SamplingParams
from gpu_consumers.sequence import Sequence


class Compiling(EchoEngine):
    """Compiles schemas when the test says so."""

    def __init__(self) -> None:
        super().__init__(slots=2)
        self.asked: list[Callable[[str | None], None]] = []

    def prepare_schema(self, json_schema: str, ready: Callable[[str | None], None]) -> object:
        self.asked.append(ready)
        return json_schema


def sequence(
    name: str, *, schema: str | None = None, adapter: str | None = None, deadline_at_us: int | None = None
) -> Sequence:
    sampling = SamplingParams(json_schema=schema)
    return Sequence(name, "t", (1, 2), 8, sampling, deadline_at_us=deadline_at_us, adapter=adapter)


def submit(entrance: Entrance, *sequences: Sequence) -> None:
    for one in sequences:
        name = one.request_id
        entrance.submit(one, 0, lambda refusal, name=name: entrance.schema_compiled(name, refusal, 0))  # type: ignore[misc]


def test_who_needs_nothing_is_let_in_at_once_and_in_order() -> None:
    entrance = Entrance(EchoEngine(), None)
    submit(entrance, sequence("a"), sequence("b"))
    assert entrance.due_in(0) == 0.0
    assert entrance.turn(0) == Entered((sequence("a"), sequence("b")))
    assert (entrance.turn(0), entrance.due_in(0)) == (Entered(), float("inf"))


def test_who_waits_for_a_schema_holds_nobody_up() -> None:
    engine = Compiling()
    entrance = Entrance(engine, None)
    submit(entrance, sequence("guided", schema="{}"), sequence("free"))
    assert entrance.turn(0).ready == (sequence("free"),)
    assert entrance.waiting_count == 1
    engine.asked[0](None)
    assert entrance.turn(0).ready == (sequence("guided", schema="{}"),)
    assert entrance.waiting_count == 0


def test_a_schema_that_cannot_be_compiled_fails_its_request_alone() -> None:
    engine = Compiling()
    entrance = Entrance(engine, None)
    submit(entrance, sequence("bad", schema="{}"), sequence("good", schema="{}"))
    engine.asked[1](None)
    engine.asked[0]("too large")
    entered = entrance.turn(0)
    assert [one.request_id for one in entered.ready] == ["good"]
    assert entered.failed["bad"].code == "invalid_json_schema"
    assert entered.failed["bad"].message == "no answer can be held to this JSON schema: too large"
    assert entrance.turn(0) == Entered()


def test_who_leaves_is_told_of_no_more() -> None:
    engine = Compiling()
    entrance = Entrance(engine, None)
    submit(entrance, sequence("compiling", schema="{}"), sequence("ready"), sequence("failed", adapter="x"))
    for name in ("compiling", "ready", "failed"):
        entrance.leave(name)
    engine.asked[0](None)
    assert entrance.turn(0) == Entered()
    assert entrance.waiting_count == 0


def test_an_engine_without_adapters_fails_who_asks_for_one() -> None:
    entrance = Entrance(EchoEngine(), None)
    submit(entrance, sequence("tuned", adapter="x"))
    failure = entrance.turn(0).failed["tuned"]
    assert (failure.status, failure.code) == (422, "adapter_unavailable")
    assert failure.message == "the echo engine of this worker runs no adapters"


def test_a_deadline_that_passes_while_the_schema_is_compiled_ends_the_request_then() -> None:
    engine = Compiling()
    entrance = Entrance(engine, None)
    submit(
        entrance,
        sequence("late", schema="{}", deadline_at_us=2_000_000),
        sequence("in time", schema="{}", deadline_at_us=3_000_000),
        sequence("patient", schema="{}"),
    )
    engine.asked[1](None)
    assert [one.request_id for one in entrance.turn(0).ready] == ["in time"]
    assert entrance.due_in(500_000) == 1.5
    assert entrance.turn(1_999_999) == Entered()
    assert entrance.turn(2_000_000) == Entered(expired=("late",))
    assert (entrance.waiting_count, entrance.due_in(2_000_000)) == (1, float("inf"))
    engine.asked[0](None)
    assert entrance.turn(4_000_000) == Entered(), "it is gone when its schema is ready"
