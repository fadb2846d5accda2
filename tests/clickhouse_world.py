"""A database of its own on chDB in this process, filled through the sink's own code. One at a time in a process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventlog.clock import now_us
from infra.clickhouse.engine import Question, ReadOnlyEngine
from infra.clickhouse.schema import load_migrations
from schemas.codec import encode
from schemas.events import Event
from streams.sink.batch import Batch, Marks
from streams.sink.clickhouse import EmbeddedClickHouse
from streams.sink.rows import Partition
from streams.sink.store import Store

TODAY = now_us() // 86_400_000_000


@dataclass(slots=True)
class World:
    """store: writes. engine: reads, as readers do."""

    path: Path
    store: Store
    engine: ReadOnlyEngine
    offsets: dict[str, int] = field(default_factory=dict)

    def put(self, events: Iterable[tuple[str, Event]], log_id: str = "log") -> None:
        """Append to the topics' only partition, then insert as one batch."""
        batch = Batch(Marks())
        for topic, event in events:
            offset = self.offsets[topic] = self.offsets.get(topic, -1) + 1
            batch.add(Partition(log_id, topic, 0), offset, encode(event), 0)
        for rows in batch.tables:
            self.store.insert(rows, ingested_on=TODAY)

    def rows(self, query: str, **parameters: str) -> list[dict[str, Any]]:
        """The answer, one object a row."""
        settings = {"output_format_json_quote_64bit_integers": "0"}
        question = Question(query, format="JSONEachRow", parameters=parameters, settings=settings)
        return [json.loads(line) for line in self.engine.ask(question).body.splitlines()]

    def row(self, query: str, **parameters: str) -> dict[str, Any]:
        """The answer's only row."""
        (found,) = self.rows(query, **parameters)
        return found


@contextmanager
def world(path: Path) -> Iterator[World]:
    """Empty tables, for as long as the block runs."""
    with Store(EmbeddedClickHouse(path)) as store:
        store.migrate(load_migrations())
        engine = ReadOnlyEngine(path)
        try:
            yield World(path, store, engine)
        finally:
            engine.close()
