"""The database's migrations, as they stand in infra/clickhouse/migrations/*.sql."""

from __future__ import annotations

from importlib import resources

from streams.sink.migrations import Migration


def load_migrations() -> tuple[Migration, ...]:
    """All of them, by name: the same files for chDB and for a server."""
    folder = resources.files("infra.clickhouse").joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(Migration(file.name, file.read_text("utf-8")) for file in files)
