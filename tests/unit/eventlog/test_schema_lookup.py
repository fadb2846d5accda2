"""Unknown schema ids cost a consumer little, whatever is behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from eventlog.schema_lookup import LookupPolicy, SchemaLookup
from schemas.catalog import AvroSchema
from schemas.errors import ContractError, SchemaRegistryUnavailable, UnknownSchema, UnusableSchema
from tests.timing import eventually, within

SCHEMA: AvroSchema = {"type": "record", "name": "A", "fields": []}
POLICY = LookupPolicy(wait_s=within(30), closed_s=10.0, budget_s=1.0, remembered_s=30.0)


class Clock:
    """Seconds that pass when a test says so."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Registry:
    """What is asked. `answers` by id: a schema, an error, or something to call first; takes `seconds` on the clock."""

    def __init__(self, clock: Clock) -> None:
        self.answers: dict[int, AvroSchema | Exception] = {}
        self.asked: list[int] = []
        self.seconds = 0.0
        self.before: Callable[[], object] = lambda: None
        self._clock = clock

    def __call__(self, schema_id: int) -> AvroSchema:
        self.asked.append(schema_id)
        self.before()
        self._clock.now += self.seconds
        answer = self.answers.get(schema_id, UnknownSchema("no such id", schema_id=schema_id))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    return Registry(clock)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Answers wait for it where a test says so; at the end of the test nobody waits any more."""
    event = threading.Event()
    yield event
    event.set()


def outcome(lookup: SchemaLookup, schema_id: int) -> AvroSchema | str:
    """The schema, or the code of the error."""
    try:
        return lookup(schema_id)
    except ContractError as error:
        return error.code


def test_a_known_id_is_asked_for_once(clock: Clock, registry: Registry) -> None:
    registry.answers[7] = SCHEMA
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    assert [lookup(7), lookup(7)] == [SCHEMA, SCHEMA]
    assert registry.asked == [7]


@pytest.mark.parametrize("error", [UnknownSchema("no such id"), UnusableSchema("no record")])
def test_an_id_without_a_schema_to_read_is_asked_for_again_after_half_a_minute(
    clock: Clock, registry: Registry, error: ContractError
) -> None:
    registry.answers[7] = error
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    assert [outcome(lookup, 7), outcome(lookup, 7)] == [error.code, error.code]
    assert registry.asked == [7]

    clock.now += POLICY.remembered_s
    registry.answers[7] = SCHEMA

    assert lookup(7) == SCHEMA
    assert registry.asked == [7, 7]


@pytest.mark.parametrize("error", [SchemaRegistryUnavailable("down"), RuntimeError("a defect")])
def test_after_a_failure_nothing_is_asked_for_ten_seconds(clock: Clock, registry: Registry, error: Exception) -> None:
    registry.answers |= {7: error, 8: SCHEMA}
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    for schema_id in (7, 7, 8):
        with pytest.raises(SchemaRegistryUnavailable) as caught:
            lookup(schema_id)
        assert caught.value.schema_id == schema_id
        assert str(error) in str(caught.value)
    assert registry.asked == [7]

    clock.now += POLICY.closed_s

    assert lookup(8) == SCHEMA


def test_what_is_remembered_is_given_while_nothing_is_asked(clock: Clock, registry: Registry) -> None:
    registry.answers |= {7: SCHEMA, 8: SchemaRegistryUnavailable("down")}
    lookup = SchemaLookup(registry, POLICY, clock=clock)
    lookup(7)
    assert outcome(lookup, 8) == "schema_registry_unavailable"

    assert lookup(7) == SCHEMA


def test_a_slow_answer_is_not_waited_for_but_kept(clock: Clock, registry: Registry, released: threading.Event) -> None:
    registry.answers[7] = SCHEMA
    registry.before = released.wait
    lookup = SchemaLookup(registry, LookupPolicy(wait_s=0.01), clock=clock)

    assert outcome(lookup, 7) == "schema_registry_unavailable"
    assert outcome(lookup, 7) == "schema_registry_unavailable"
    eventually(lambda: registry.asked == [7], "the question goes on")
    assert not released.is_set()

    released.set()

    assert eventually(lambda: outcome(lookup, 7) == SCHEMA, "the late answer is there")
    assert registry.asked == [7]


def test_one_question_that_hangs_is_one_question(clock: Clock, registry: Registry, released: threading.Event) -> None:
    registry.before = released.wait
    policy = LookupPolicy(wait_s=0.01)
    lookup = SchemaLookup(registry, policy, clock=clock)

    for _ in range(5):
        assert outcome(lookup, 7) == "schema_registry_unavailable"
        clock.now += policy.closed_s
    eventually(lambda: registry.asked == [7], "it was asked")
    released.set()
    eventually(lambda: outcome(lookup, 7) == "unknown_schema", "the answer is there")

    assert registry.asked == [7]


def test_ids_that_senders_make_up_take_a_second_in_ten(clock: Clock, registry: Registry) -> None:
    registry.seconds = 0.3
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    codes = [outcome(lookup, schema_id) for schema_id in range(100)]

    assert codes == ["unknown_schema"] * 4 + ["schema_registry_unavailable"] * 96
    assert registry.asked == [0, 1, 2, 3]

    clock.now += POLICY.closed_s

    assert outcome(lookup, 50) == "unknown_schema"


def test_answers_that_were_waited_for_long_ago_do_not_count(clock: Clock, registry: Registry) -> None:
    registry.seconds = 0.9
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    for schema_id in range(5):
        assert outcome(lookup, schema_id) == "unknown_schema"
        clock.now += POLICY.closed_s


def test_no_more_than_a_thousand_answers_are_remembered(clock: Clock, registry: Registry) -> None:
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    for schema_id in range(1_025):
        outcome(lookup, schema_id)
    asked = len(registry.asked)
    outcome(lookup, 1_024)
    outcome(lookup, 1)
    assert len(registry.asked) == asked
    outcome(lookup, 0)

    assert registry.asked[asked:] == [0]


def test_threads_that_meet_one_id_ask_one_question(clock: Clock, registry: Registry, released: threading.Event) -> None:
    registry.answers[7] = SCHEMA
    registry.before = released.wait
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(lookup, 7) for _ in range(4)]
        eventually(lambda: bool(registry.asked), "somebody asks")
        released.set()
        answers = [one.result(within(30)) for one in waiting]

    assert answers == [SCHEMA] * 4
    assert registry.asked == [7]


def test_ids_do_not_wait_for_each_other(clock: Clock, registry: Registry, released: threading.Event) -> None:
    registry.answers |= {7: SCHEMA, 8: SCHEMA}
    lookup = SchemaLookup(registry, POLICY, clock=clock)

    with ThreadPoolExecutor(1) as threads:
        registry.before = released.wait
        waiting = threads.submit(lookup, 7)
        eventually(lambda: registry.asked == [7], "the first one asks")
        registry.before = lambda: None
        assert lookup(8) == SCHEMA
        assert not waiting.done()
        released.set()
        assert waiting.result(within(30)) == SCHEMA
