"""What is read and not yet in ClickHouse: the rows of both tables, and the offsets that may be committed after them.

Marks make it exactly once. A table's mark in a partition is the highest offset of which it holds a row. A batch holds
the records of each partition in offset order without a gap, and its rows of one table are inserted whole or not at all;
so a table that holds a record holds all its earlier ones, and what is not above the mark is there already. The two
tables have a mark each, since a sink can die between its two inserts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.codec import SINGLE_OBJECT, Codec
from schemas.errors import ContractError
from schemas.events import TokensGenerated
from streams.sink.rows import (
    EVENTS,
    TABLES,
    TOKEN_EVENTS,
    EventRows,
    Origin,
    Partition,
    Rows,
    TokenRows,
    add_event,
    add_tokens,
    add_undecodable,
    decoded,
)

TableMarks = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Marks:
    """The highest offset in each partition, for each table; a partition that a table has no row of is not there."""

    tables: Mapping[str, TableMarks] = field(default_factory=lambda: {table: {} for table in TABLES})

    def start(self, partition: Partition, committed: int | None) -> int:
        """Where to begin reading: what was committed, unless ClickHouse holds less than it says.

        Nothing committed: the beginning, the marks drop what is there. Nothing in ClickHouse (a new or lost database):
        the beginning too, for the log is the truth and the tables are a projection of it.
        """
        held = max((marks[partition] for marks in self.tables.values() if partition in marks), default=-1)
        return 0 if committed is None else min(committed, held + 1)


@dataclass(slots=True)
class Batch:
    """Owned by one thread. `next_offsets`: for each partition, the offset behind its last record here."""

    marks: Marks
    codec: Codec = SINGLE_OBJECT
    tokens: TokenRows = field(default_factory=TokenRows)
    events: EventRows = field(default_factory=EventRows)
    next_offsets: dict[Partition, int] = field(default_factory=dict)
    size_bytes: int = 0
    undecodable: int = 0

    def add(self, partition: Partition, offset: int, value: bytes, timestamp_ms: int) -> ContractError | None:
        """The next record of its partition. It makes a row, or none where its table has it already.

        Gives the error where it made a row of bytes that can't be decoded.
        """
        self.next_offsets[partition] = offset + 1
        event = decoded(value, self.codec)
        table = TOKEN_EVENTS if isinstance(event, TokensGenerated) else EVENTS
        if offset <= self.marks.tables[table].get(partition, -1):
            return None
        self.size_bytes += len(value)
        origin = Origin(partition, offset)
        if isinstance(event, TokensGenerated):
            add_tokens(self.tokens, origin, event)
        elif isinstance(event, ContractError):
            self.undecodable += bool(value)
            add_undecodable(self.events, origin, value, event, timestamp_ms)
            return event if value else None
        else:
            add_event(self.events, origin, event)
        return None

    def __len__(self) -> int:
        """Rows of both tables."""
        return len(self.tokens) + len(self.events)

    @property
    def is_empty(self) -> bool:
        """Nothing to insert and nothing to commit."""
        return not self.next_offsets

    @property
    def tables(self) -> tuple[Rows, ...]:
        """In the order in which they are inserted."""
        return tuple(rows for rows in (self.tokens, self.events) if len(rows))
