"""Exactly once as a property of batches and marks: a sink that dies between any two steps, again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import encode
from streams.sink.batch import Batch, Marks
from streams.sink.rows import TABLES, TOKEN_EVENTS, Partition, Rows
from tests.request_story import Story

STORY = Story()
TOKENS = encode(STORY.tokens(at=10_000, index=0)[1])
OTHER = encode(STORY.started()[1])
PARTITIONS = (Partition("log", "tokens.acme", 0), Partition("log", "tokens.acme", 1))
STEPS_OF_A_FLUSH = 3  # two inserts and the commit


@dataclass(slots=True)
class Tables:
    """What ClickHouse promises: an insert is whole or not there, and marks speak of what is there."""

    rows: dict[str, list[tuple[Partition, int]]] = field(default_factory=lambda: {table: [] for table in TABLES})

    def insert(self, rows: Rows) -> None:
        log_ids, topics, numbers, offsets = rows.columns[:4]
        self.rows[rows.table] += [
            (Partition(log_id, topic, number), offset)
            for log_id, topic, number, offset in zip(log_ids, topics, numbers, offsets, strict=True)
        ]

    def marks(self) -> Marks:
        return Marks(
            {
                table: {p: max(o for q, o in rows if q == p) for p in {p for p, _ in rows}}
                for table, rows in self.rows.items()
            }
        )


@dataclass(slots=True)
class Kafka:
    """A log for each partition, True for a token event, and the committed offsets."""

    logs: dict[Partition, list[bool]]
    committed: dict[Partition, int] = field(default_factory=dict)


def live(kafka: Kafka, tables: Tables, batch_sizes: list[int], dies_after_steps: int) -> None:
    """One sink's life: read on from where it should, flush in batches, die after so many steps of flushing."""
    marks = tables.marks()
    positions = {p: marks.start(p, kafka.committed.get(p)) for p in kafka.logs}
    steps = dies_after_steps
    for size in batch_sizes:
        batch = Batch(marks)
        for _ in range(size):
            behind = [p for p, offset in positions.items() if offset < len(kafka.logs[p])]
            if not behind:
                break
            partition = min(behind, key=lambda p: positions[p])
            offset = positions[partition]
            batch.add(partition, offset, TOKENS if kafka.logs[partition][offset] else OTHER, 0)
            positions[partition] = offset + 1
        for rows in batch.tables:
            if not steps:
                return
            tables.insert(rows)
            steps -= 1
        if not steps:
            return
        kafka.committed |= batch.next_offsets
        steps -= 1


logs = st.lists(st.booleans(), max_size=40)
lives = st.lists(
    st.tuples(st.lists(st.integers(1, 12), max_size=8), st.integers(0, 8 * STEPS_OF_A_FLUSH), st.booleans()), max_size=6
)


@given(st.tuples(logs, logs), lives)
def test_every_record_is_in_its_table_once_whatever_the_sinks_before_the_last_one_died_of(
    contents: tuple[list[bool], list[bool]], lives: list[tuple[list[int], int, bool]]
) -> None:
    kafka, tables = Kafka(dict(zip(PARTITIONS, contents, strict=True))), Tables()
    for batch_sizes, dies_after_steps, group_is_lost in lives:
        if group_is_lost:
            kafka.committed.clear()
        live(kafka, tables, batch_sizes, dies_after_steps)
    everything = sum(map(len, contents)) + 1
    live(kafka, tables, [everything], STEPS_OF_A_FLUSH)
    for table in TABLES:
        expected = [
            (partition, offset)
            for partition, content in kafka.logs.items()
            for offset, is_tokens in enumerate(content)
            if is_tokens == (table == TOKEN_EVENTS)
        ]
        assert sorted(tables.rows[table]) == expected


@given(st.tuples(logs, logs), st.integers(1, 30))
def test_a_database_that_was_lost_is_filled_again_from_the_log(
    contents: tuple[list[bool], list[bool]], size: int
) -> None:
    kafka = Kafka(dict(zip(PARTITIONS, contents, strict=True)))
    live(kafka, Tables(), [size] * 100, 1_000)
    empty = Tables()
    live(kafka, empty, [size] * 100, 1_000)
    assert sum(map(len, empty.rows.values())) == sum(map(len, contents))
