"""Whatever bytes and whatever schemas come: an event, or a typed error, soon and in little memory."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from schemas.catalog import published_schema
from schemas.codec import Codec, confluent_header
from schemas.errors import ContractError
from schemas.events import EVENT_TYPES
from tests.fuzz_avro import MAX_TAKEN_BYTES, fuzz, report, wrong_fields
from tests.hostile_avro import DAMAGE, SPOILT, BodyWriter
from tests.hostile_schemas import HOSTILE, broken, foreign, random_json

PAYLOADS = 100_000
SCHEMAS = 3_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_hundred_thousand_hostile_payloads_are_events_or_typed_errors() -> None:
    summary = fuzz(PAYLOADS, seed=2026)
    assert not summary.findings, report(summary)
    assert summary.count == PAYLOADS
    assert summary.taken_bytes < MAX_TAKEN_BYTES
    assert {"event", "undecodable", "unknown_schema", "unusable_schema"} <= summary.outcomes.keys()
    assert {*DAMAGE, *SPOILT, "too large", "giant text", "endless schema"} <= summary.kinds.keys()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_or_harmless(name: str) -> None:
    codec = Codec()
    bodies = [b"", b"\0", b"\2\0", b"\1\1", b"\xff" * 9 + b"\1" * 20, bytes(1000)]
    with contextlib.suppress(ContractError):
        codec.learn(1, HOSTILE[name])
    for body in bodies:
        with pytest.raises(ContractError):
            codec.decode(confluent_header(1) + body)


def test_schemas_that_are_almost_ours_are_refused_or_give_whole_events() -> None:
    read = 0
    for seed in range(SCHEMAS):
        rng = random.Random(seed)
        ours: Any = published_schema(rng.choice(EVENT_TYPES))
        schema = broken(rng, ours) if rng.random() < 0.7 else foreign(rng, ours)
        codec = Codec()
        try:
            codec.learn(1, schema)
            event = codec.decode(confluent_header(1) + BodyWriter(rng).body(schema))
        except ContractError:
            continue
        assert not wrong_fields(event), (seed, schema)
        read += 1
    assert read > SCHEMAS / 20


def test_json_at_random_is_no_schema() -> None:
    for seed in range(SCHEMAS):
        with pytest.raises(ContractError):
            Codec().learn(1, random_json(random.Random(seed)))


def test_the_generator_is_a_function_of_its_seed() -> None:
    schema = published_schema(EVENT_TYPES[0])
    bodies = {BodyWriter(random.Random(7)).body(schema) for _ in range(3)}
    assert len(bodies) == 1
    assert BodyWriter(random.Random(8)).body(schema) not in bodies
