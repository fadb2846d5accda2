"""What a batch takes, what it drops, and where reading starts."""

from __future__ import annotations

import pytest

from schemas.codec import encode
from streams.sink.batch import Batch, Marks
from streams.sink.rows import EVENTS, TOKEN_EVENTS, Partition
from tests.request_story import Story

STORY = Story()
PARTITION = Partition("log", "tokens.acme", 0)
TOKENS = encode(STORY.tokens(at=10_000, index=0)[1])
STARTED = encode(STORY.started()[1])


def marks(tokens: int | None = None, events: int | None = None) -> Marks:
    return Marks(
        {
            TOKEN_EVENTS: {} if tokens is None else {PARTITION: tokens},
            EVENTS: {} if events is None else {PARTITION: events},
        }
    )


def test_each_record_is_a_row_of_one_table_and_moves_the_offset_to_commit() -> None:
    batch = Batch(Marks())
    for offset, value in enumerate([STARTED, TOKENS, TOKENS, b"garbage"]):
        batch.add(PARTITION, offset, value, 0)
    assert [(rows.table, len(rows)) for rows in batch.tables] == [(TOKEN_EVENTS, 2), (EVENTS, 2)]
    assert batch.next_offsets == {PARTITION: 4}
    assert (len(batch), batch.undecodable) == (4, 1)


def test_a_table_drops_what_it_has_whatever_the_other_one_has() -> None:
    # the sink died between its two inserts: tokens up to 5 are there, of the events only what came up to 2
    batch = Batch(marks(tokens=5, events=2))
    for offset, value in enumerate([STARTED, TOKENS, TOKENS, STARTED, TOKENS, TOKENS, TOKENS, STARTED]):
        batch.add(PARTITION, offset, value, 0)
    assert [(rows.table, rows.columns[3]) for rows in batch.tables] == [(TOKEN_EVENTS, [6]), (EVENTS, [3, 7])]


def test_a_batch_of_known_records_inserts_nothing_and_still_commits() -> None:
    batch = Batch(marks(tokens=9, events=9))
    batch.add(PARTITION, 4, TOKENS, 0)
    assert (len(batch), batch.tables, batch.is_empty) == (0, (), False)
    assert batch.next_offsets == {PARTITION: 5}


def test_marks_of_another_log_or_partition_drop_nothing() -> None:
    batch = Batch(marks(tokens=100, events=100))
    batch.add(Partition("another log", PARTITION.topic, 0), 0, TOKENS, 0)
    batch.add(Partition("log", PARTITION.topic, 1), 0, TOKENS, 0)
    assert len(batch) == 2


@pytest.mark.parametrize(
    ("tokens", "events", "committed", "start"),
    [
        (9, 7, 10, 10),  # all is well
        (9, 7, 6, 6),  # died before a commit: what is there is dropped
        (9, 7, None, 0),  # the group is new
        (None, None, 10, 0),  # the database is new: the log fills it again
        (3, 7, 10, 8),  # ClickHouse lost what it had taken last
        (None, None, None, 0),
    ],
)
def test_reading_starts_where_offsets_and_tables_agree(
    tokens: int | None, events: int | None, committed: int | None, start: int
) -> None:
    assert marks(tokens, events).start(PARTITION, committed) == start
