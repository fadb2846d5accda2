"""The tables as the sink uses them: bring them up to date, ask how far they are, insert."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from clickhouse_connect.driver.client import Client

from streams.sink.batch import Marks
from streams.sink.clickhouse import DATABASE, ClickHouseAddress, open_client, translated
from streams.sink.migrations import Migration, pending
from streams.sink.rows import TABLES, Partition, Rows, deduplication_token

_APPLIED_TABLE = f"""
CREATE TABLE IF NOT EXISTS {DATABASE}.schema_migrations
(
    `name` String,
    `checksum` String,
    `applied_at` DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = MergeTree
ORDER BY (name, applied_at)
"""

# A batch is one block, hence one part, hence whole or not there: never cut by size, never held back by the server.
_ONE_BLOCK = {
    "min_insert_block_size_rows": 100_000_000,
    "min_insert_block_size_bytes": 0,
    "max_insert_threads": 1,
    "async_insert": 0,
}


class Store:
    """Blocking; one thread at a time. Every method raises ClickHouseUnavailable or ClickHouseUnusable."""

    def __init__(self, address: ClickHouseAddress) -> None:
        self._address = address
        self._client: Client | None = None
        self._column_types: dict[str, list[str]] = {}

    def migrate(self, migrations: Iterable[Migration]) -> list[str]:
        """Bring the database up to date; the names of what was applied. Raises MigrationError too."""
        client = self._connected()
        with translated(self._address):
            client.command(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            client.command(_APPLIED_TABLE)
            query = f"SELECT name, argMax(checksum, applied_at) FROM {DATABASE}.schema_migrations GROUP BY name"
            applied = {str(name): str(checksum) for name, checksum in client.query(query).result_rows}
        wanted = pending(migrations, applied)
        for migration in wanted:
            with translated(self._address):
                for statement in migration.statements:
                    client.command(statement)
                client.insert(
                    "schema_migrations", [[migration.name, migration.checksum]],
                    column_names=["name", "checksum"], database=DATABASE,
                )  # fmt: skip
        return [migration.name for migration in wanted]

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """How far each table is in these partitions."""
        wanted = set(partitions)
        parameters = {"logs": sorted({p.log_id for p in wanted}), "topics": sorted({p.topic for p in wanted})}
        tables: dict[str, dict[Partition, int]] = {}
        for table in TABLES:
            query = (
                f"SELECT log_id, topic, partition, max(offset) FROM {DATABASE}.{table} "
                "WHERE log_id IN {logs:Array(String)} AND topic IN {topics:Array(String)} "
                "GROUP BY log_id, topic, partition"
            )
            with translated(self._address):
                rows = self._connected().query(query, parameters=parameters).result_rows
            found = {Partition(*row[:3]): row[3] for row in rows}
            tables[table] = {partition: found[partition] for partition in wanted & found.keys()}
        return Marks(tables)

    def insert(self, rows: Rows, *, ingested_on: int) -> None:
        """All rows or none. The same rows again (after an answer that was lost) change nothing.

        ingested_on: days since the Unix epoch; the same in every attempt.
        """
        with translated(self._address):
            self._connected().insert(
                rows.table,
                [[ingested_on] * len(rows), *rows.columns],
                column_names=["ingested_on", *rows.names],
                column_type_names=self._types_of(rows),
                column_oriented=True,
                database=DATABASE,
                settings={**_ONE_BLOCK, "insert_deduplication_token": deduplication_token(rows)},
            )

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> Client:
        if self._client is None:
            self._client = open_client(self._address)
        return self._client

    def _types_of(self, rows: Rows) -> list[str]:
        """Asked once: an insert need not ask the server each time what its columns are."""
        if rows.table not in self._column_types:
            described = self._connected().query(f"DESCRIBE TABLE {DATABASE}.{rows.table}").result_rows
            types = {name: type_name for name, type_name, *_ in described}
            self._column_types[rows.table] = [types[name] for name in ("ingested_on", *rows.names)]
        return self._column_types[rows.table]
