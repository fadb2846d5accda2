"""The tables on the real engine: whole inserts, once, and marks that tell what is there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.clickhouse.schema import load_migrations
from schemas.codec import encode
from schemas.events import TokenLogprob, TokenLogprobs
from streams.sink.batch import Batch, Marks
from streams.sink.clickhouse import ClickHouseServer, EmbeddedClickHouse, open_client
from streams.sink.errors import ClickHouseUnavailable, ClickHouseUnusable
from streams.sink.rows import EVENTS, TOKEN_EVENTS, Partition
from streams.sink.store import Store
from tests.clickhouse_world import TODAY, World, world
from tests.request_story import Story

STORY = Story()
PARTITION = Partition("log", "tokens.acme", 0)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("clickhouse")) as found:
        yield found


def batch_of(partition: Partition, values: list[bytes], first: int = 0, marks: Marks | None = None) -> Batch:
    batch = Batch(marks or Marks())
    for offset, value in enumerate(values, first):
        batch.add(partition, offset, value, 0)
    return batch


def insert(store: Store, batch: Batch) -> None:
    for rows in batch.tables:
        store.insert(rows, ingested_on=TODAY)


def test_marks_are_the_highest_offsets_of_each_table(database: World) -> None:
    partition = PARTITION._replace(log_id="marks")
    values = [encode(event) for _, event in (STORY.started(), STORY.tokens(10_000, 0), STORY.finished())]
    insert(database.store, batch_of(partition, values, first=40))
    other = partition._replace(number=1)
    marks = database.store.marks([partition, other])
    assert marks.tables == {TOKEN_EVENTS: {partition: 41}, EVENTS: {partition: 42}}


def test_the_same_rows_again_change_nothing(database: World) -> None:
    partition = PARTITION._replace(log_id="again")
    batch = batch_of(partition, [encode(STORY.tokens(10_000, 0)[1]), encode(STORY.started()[1])])
    insert(database.store, batch)
    insert(database.store, batch)
    for table in (EVENTS, TOKEN_EVENTS):
        assert database.row(f"SELECT count() AS n FROM {table} WHERE log_id = 'again'") == {"n": 1}


def test_a_large_batch_is_one_part_so_that_it_is_whole_or_not_there(database: World) -> None:
    # 24 MB: clickhouse-connect cuts it into blocks of about 1 MB, which the engine must put together again
    partition = PARTITION._replace(log_id="large")
    values = [b"x" * 12_000 for _ in range(2_000)]
    insert(database.store, batch_of(partition, values))
    (parts,) = database.rows(
        "SELECT uniqExact(_part) AS parts, count() AS n, max(length(payload)) AS longest FROM events "
        "WHERE log_id = 'large'"
    )
    assert parts == {"parts": 1, "n": 2_000, "longest": 12_000}


def test_numbers_that_only_a_foreign_producer_would_write_do_not_stop_the_sink(database: World) -> None:
    story = Story(number=9, tenant="odd")
    event = story.tokens(at=-(2**50), index=-(2**28))[1]
    insert(database.store, batch_of(PARTITION._replace(log_id="odd", topic="tokens.odd"), [encode(event)]))
    assert database.row("SELECT index FROM token_events WHERE tenant = 'odd'") == {"index": -(2**28)}


def test_log_probabilities_come_out_as_they_went_in_beside_tokens_without(database: World) -> None:
    story = Story(number=10, tenant="likely")
    given = tuple(
        TokenLogprobs(
            logprob=-0.5 * n, utf8=piece,
            top=tuple(TokenLogprob(token_id=m, utf8=piece, logprob=-float(m)) for m in range(n)),
        )
        for n, piece in enumerate((b" so", b"\xe2\x82", b""))
    )  # fmt: skip
    events = [
        story.tokens(at=10_000, index=0), story.tokens(at=20_000, index=1, logprobs=given),
        story.tokens(at=30_000, index=2),
    ]  # fmt: skip
    partition = PARTITION._replace(log_id="likely", topic="tokens.likely")
    insert(database.store, batch_of(partition, [encode(event) for _, event in events]))
    columns = "logprobs, arrayMap(hex, token_utf8) AS utf8, top_logprobs.token_id AS ids, top_logprobs.logprob AS top"
    rows = database.rows(f"SELECT {columns} FROM token_events WHERE tenant = 'likely' ORDER BY at")
    without: dict[str, list[object]] = {"logprobs": [], "utf8": [], "ids": [], "top": []}
    assert rows == [
        without,
        {
            "logprobs": [0.0, -0.5, -1.0], "utf8": ["20736F", "E282", ""], "ids": [[], [0], [0, 1]],
            "top": [[], [0.0], [0.0, -1.0]],
        },
        without,
    ]  # fmt: skip
    read = database.row("SELECT arrayMap(t -> hex(t.utf8), top_logprobs[2]) AS utf8 FROM token_events WHERE index = 1")
    assert read == {"utf8": ["E282"]}


def test_migrations_are_applied_once(database: World) -> None:
    assert database.store.migrate(load_migrations()) == []
    names = [row["name"] for row in database.rows("SELECT name FROM schema_migrations ORDER BY name")]
    assert names == [migration.name for migration in load_migrations()]


def test_a_path_that_another_process_has_open_is_a_clear_error(database: World) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = spawn.Queue()
    child = spawn.Process(target=_open_in_another_process, args=(str(database.path), answers))
    child.start()
    message = answers.get(timeout=60)
    child.join(60)
    assert message.startswith("ClickHouseUnusable: chDB at ")


def _open_in_another_process(path: str, answers: multiprocessing.Queue[str]) -> None:
    try:
        open_client(EmbeddedClickHouse(Path(path))).close()
    except ClickHouseUnusable as error:
        answers.put(f"{type(error).__name__}: {error}")
    else:
        answers.put("it opened")


def test_a_server_that_does_not_answer_is_unavailable_and_its_password_is_not_told() -> None:
    with pytest.raises(ClickHouseUnavailable) as caught:
        open_client(ClickHouseServer("clickhouse://user:secret@127.0.0.1:1/headrace"))
    assert "ClickHouse at clickhouse://127.0.0.1:1/headrace" in str(caught.value)
    assert "secret" not in str(caught.value)
