"""The store on a server, over HTTP: the same whole inserts, once, also when an answer is lost or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.schema import load_migrations
from schemas.codec import encode
from streams.sink.batch import Batch, Marks
from streams.sink.clickhouse import ClickHouseServer, open_client
from streams.sink.errors import ClickHouseUnavailable
from streams.sink.rows import EVENTS, TOKEN_EVENTS, Partition
from streams.sink.store import Store
from tests.clickhouse_server import ClickHouseDouble
from tests.clickhouse_world import TODAY
from tests.request_story import Story

STORY = Story()
PARTITION = Partition("log", "tokens.acme", 0)
NO_SPACE = ClickHouseFault(243, "NOT_ENOUGH_SPACE", "Cannot reserve 1.00 MiB, not enough space.")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClickHouseDouble]:
    server = ClickHouseDouble(tmp_path)
    server.start()
    yield server
    server.close()


@pytest.fixture
def store(server: ClickHouseDouble) -> Iterator[Store]:
    with Store(ClickHouseServer(server.dsn)) as store:
        store.migrate(load_migrations())
        yield store


def batch() -> Batch:
    batch = Batch(Marks())
    events = [STORY.started(), STORY.tokens(10_000, 0), STORY.tokens(11_000, 1), STORY.finished()]
    for offset, (_, event) in enumerate(events):
        batch.add(PARTITION, offset, encode(event), 0)
    return batch


def count(server: ClickHouseDouble) -> tuple[int, int]:
    client = open_client(ClickHouseServer(server.dsn), database="headrace")
    try:
        return tuple(client.command(f"SELECT count() FROM {table}") for table in (EVENTS, TOKEN_EVENTS))  # type: ignore[return-value]
    finally:
        client.close()


def insert(store: Store, batch: Batch) -> None:
    for rows in batch.tables:
        store.insert(rows, ingested_on=TODAY)


def test_the_same_migrations_and_inserts_work_on_a_server(server: ClickHouseDouble, store: Store) -> None:
    insert(store, batch())
    assert count(server) == (2, 2)
    assert store.marks([PARTITION]).tables == {EVENTS: {PARTITION: 3}, TOKEN_EVENTS: {PARTITION: 2}}
    assert store.migrate(load_migrations()) == []


def test_an_insert_whose_answer_was_lost_can_be_made_again(server: ClickHouseDouble, store: Store) -> None:
    rows = batch().tables[0]
    server.lose_answers = 1
    with pytest.raises(ClickHouseUnavailable):
        store.insert(rows, ingested_on=TODAY)
    store.insert(rows, ingested_on=TODAY)
    assert count(server) == (0, 2)


def test_a_full_disk_is_told_in_one_line_and_the_same_store_goes_on_when_there_is_space(
    server: ClickHouseDouble, store: Store
) -> None:
    server.refuse = NO_SPACE
    with pytest.raises(ClickHouseUnavailable, match="NOT_ENOUGH_SPACE") as caught:
        insert(store, batch())
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    server.refuse = None
    insert(store, batch())
    assert count(server) == (2, 2)


def test_a_server_that_went_away_and_came_back_is_used_again(server: ClickHouseDouble, store: Store) -> None:
    server.stop()
    with pytest.raises(ClickHouseUnavailable):
        insert(store, batch())
    server.start()
    insert(store, batch())
    assert count(server) == (2, 2)
