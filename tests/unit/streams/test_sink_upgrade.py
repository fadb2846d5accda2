"""A database that an older release made and filled is brought up to date."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from infra.clickhouse.schema import load_migrations
from schemas.codec import encode
from streams.sink.batch import Batch, Marks
from streams.sink.clickhouse import EmbeddedClickHouse, open_client
from streams.sink.rows import Partition
from streams.sink.store import Store
from tests.clickhouse_world import TODAY
from tests.request_story import Story


def test_rows_from_before_log_probabilities_and_adapters_have_none_and_new_ones_stand_beside_them(
    tmp_path: Path,
) -> None:
    story, address = Story(), EmbeddedClickHouse(tmp_path)
    with Store(address) as store:
        store.migrate(migration for migration in load_migrations() if migration.name == "0001_facts.sql")
    with closing(open_client(address)) as client:
        client.command("INSERT INTO headrace.events (ingested_on, offset, event_type) VALUES (today(), 0, 'Old')")
        client.command("INSERT INTO headrace.token_events (ingested_on, index, token_ids) VALUES (today(), 0, [7])")

    with Store(address) as store:
        assert "0002_logprobs_and_adapters.sql" in store.migrate(load_migrations())
        batch = Batch(Marks())
        for offset, (_, event) in enumerate((story.routed(adapter="tone@v1"), story.tokens(10_000, 1)), start=1):
            batch.add(Partition("log", "tokens.acme", 0), offset, encode(event), 0)
        for rows in batch.tables:
            store.insert(rows, ingested_on=TODAY)

    with closing(open_client(address)) as client:
        events = client.query("SELECT adapter FROM headrace.events ORDER BY offset").result_rows
        tokens = client.query("SELECT token_ids, logprobs, top_logprobs FROM headrace.token_events ORDER BY index")
    assert events == [("",), ("tone@v1",)]
    assert [tuple(map(list, row)) for row in tokens.result_rows] == [([7], [], []), ([1], [], [])]
