"""Schemas are judged by a process: hostile ones cost a bounded time, and what comes after them is judged as before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.json_grammar import MAX_JSON_SCHEMA_BYTES, schema_objection
from models.schema_judge import Judged, SchemaJudge
from tests.timing import eventually

GOOD = '{"type": "object", "properties": {"größe": {"type": "integer"}}}'
ENDLESS = json.dumps({"type": "string", "allOf": [{"pattern": f".*a{i}.*"} for i in range(40)]})


@pytest.fixture
def judge() -> Iterator[SchemaJudge]:
    judge = SchemaJudge(cpu_seconds=0.5)
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


def test_its_process_ends_with_its_owner_even_in_the_middle_of_a_schema() -> None:
    """The owner is killed: nobody is left who would kill the process, and no end of its input is read."""
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, ENDLESS], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        judge = int(owner.stdout.readline())
        before = _cpu_ticks(judge)
        eventually(lambda: _cpu_ticks(judge) > before + 5, "it is compiling")
        owner.kill()
    eventually(lambda: not _runs(judge), "the process has ended")


def test_what_it_said_lately_is_known_without_a_turn() -> None:
    judge = SchemaJudge(cpu_seconds=30.0)
    assert judge.remembered(GOOD) is None
    assert judge.objection(GOOD) is None
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(judge.objection, ENDLESS)
        eventually(judge._asking.locked, "it is compiling")
        assert judge.remembered(GOOD) == Judged(None)
        assert judge.objection(GOOD) is None
        judge.close()
        assert endless.result(10) is not None


_OWNER = """
import sys, threading
from models.schema_judge import SchemaJudge
from tests.timing import eventually
judge = SchemaJudge(cpu_seconds=0.5)
judge.objection("{}")
threading.Thread(target=judge.objection, args=(sys.argv[1],), daemon=True).start()
print(judge._process.pid, flush=True)
threading.Event().wait()
"""


def _stat(pid: int) -> list[str]:
    """From the state on; of a process that has ended, the state Z alone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return ["Z"]


def _runs(pid: int) -> bool:
    return _stat(pid)[0] != "Z"


def _cpu_ticks(pid: int) -> int:
    """Of processor time, a hundredth of a second each."""
    return int(_stat(pid)[11])
