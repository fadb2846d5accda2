"""The view of dead letters, on the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas.events import DeadLettered, DeadLetterRequeued
from tests.clickhouse_world import World, world

LETTER = DeadLettered(
    at_us=5_000_000, consumer="streams.validate", reason="undecodable", message="no header",
    origin_topic="requests.acme", origin_partition=0, origin_offset=12, value=b"\xff", schema_id=None,
)  # fmt: skip
AGAIN = replace(LETTER, at_us=8_000_000, reason="unknown_schema", schema_fingerprint="00ff", schema_id=7)
REQUEUED = DeadLetterRequeued(
    at_us=9_000_000, origin_topic="requests.acme", origin_partition=0, origin_offset=12, requeued_offset=40,
    operator="ann@ops",
)  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("clickhouse")) as found:
        yield found


def test_a_record_is_one_row_however_often_its_letter_was_written(database: World) -> None:
    topic = "dead-letters.acme"
    database.put([(topic, LETTER), (topic, AGAIN), (topic, REQUEUED)])
    row = database.row("SELECT * FROM dead_letters WHERE tenant = 'acme'")
    assert row == {
        "tenant": "acme", "id": "requests.acme/0/12", "origin_topic": "requests.acme", "origin_partition": 0,
        "origin_offset": 12, "reason": "unknown_schema", "message": "no header", "consumer": "streams.validate",
        "schema_fingerprint": "00ff", "schema_id": 7, "first_at": "1970-01-01 00:00:05.000000",
        "last_at": "1970-01-01 00:00:08.000000", "times": 2, "requeued_at": "1970-01-01 00:00:09.000000",
        "requeued_offset": 40, "operator": "ann@ops",
    }  # fmt: skip


def test_what_was_not_written_back_is_open_and_other_logs_are_apart(database: World) -> None:
    topic, letter = "dead-letters._system", replace(LETTER, origin_topic="telemetry")
    database.put([(topic, letter)])
    database.put([(topic, letter), (topic, replace(REQUEUED, origin_topic="telemetry"))], log_id="another")
    database.put([(topic, replace(REQUEUED, origin_topic="telemetry", origin_offset=99))])
    rows = database.rows("SELECT id, times, requeued_at IS NULL AS open, requeued_offset, operator FROM dead_letters "
                         "WHERE tenant = '_system' ORDER BY open DESC")  # fmt: skip
    assert rows == [
        {"id": "telemetry/0/12", "times": 1, "open": 1, "requeued_offset": None, "operator": ""},
        {"id": "telemetry/0/12", "times": 1, "open": 0, "requeued_offset": 40, "operator": "ann@ops"},
    ]
