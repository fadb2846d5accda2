"""Schemas are judged by a process: hostile ones cost a bounded time, and what comes after them is judged as before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from models.errors import SchemaJudgeBusyError
from models.json_grammar import MAX_JSON_SCHEMA_BYTES, schema_objection
from models.schema_judge import SchemaJudge

GOOD = '{"type": "object", "properties": {"größe": {"type": "integer"}}}'
ENDLESS = json.dumps({"type": "string", "allOf": [{"pattern": f".*a{i}.*"} for i in range(40)]})


@pytest.fixture
def judge() -> Iterator[SchemaJudge]:
    judge = SchemaJudge(seconds=0.5)
    yield judge
    judge.close()


def test_it_says_what_the_compiler_says(judge: SchemaJudge) -> None:
    too_long = json.dumps({"title": "x" * MAX_JSON_SCHEMA_BYTES})
    for schema in (GOOD, "{", '{"type": "objec"}', '{"title": "\ud800"}', "\n", too_long, GOOD):
        assert judge.objection(schema) == schema_objection(schema)


def test_a_schema_that_takes_for_ever_is_refused_and_the_next_one_is_judged(judge: SchemaJudge) -> None:
    for _ in range(2):
        refused = judge.objection(ENDLESS)
        assert refused is not None
        assert "more time or memory" in refused
    assert judge.objection(GOOD) is None


def test_a_process_that_was_killed_is_made_again(judge: SchemaJudge) -> None:
    assert judge.objection(GOOD) is None
    judge.close()
    assert judge.objection('{"type": "null"}') is None


def test_who_waits_too_long_behind_others_is_told_to_come_back() -> None:
    judge = SchemaJudge(seconds=30.0, queue_seconds=0.05)
    assert judge.objection(GOOD) is None

    def keep_asking() -> None:
        for spaces in count(1):
            judge.objection(GOOD + " " * spaces)

    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(judge.objection, ENDLESS)
        with pytest.raises(SchemaJudgeBusyError):
            keep_asking()
        assert judge.objection(GOOD) is None, "what was judged lately needs no turn"
        judge.close()
        assert endless.result(10) is not None
