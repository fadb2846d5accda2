"""Which migrations are applied, and when that is refused."""

from __future__ import annotations

import pytest

from infra.clickhouse.schema import load_migrations
from streams.sink.errors import MigrationError
from streams.sink.migrations import Migration, pending

TABLES = Migration("0001_tables.sql", "CREATE TABLE a;\n")
COLUMN = Migration("0002_column.sql", "ALTER TABLE a;\n")
VIEW = Migration("repeat_01_view.sql", "CREATE OR REPLACE VIEW v;\n")
ALL = (VIEW, COLUMN, TABLES)


def had(*migrations: Migration) -> dict[str, str]:
    return {migration.name: migration.checksum for migration in migrations}


def test_an_empty_database_gets_all_in_order_views_last() -> None:
    assert pending(ALL, {}) == [TABLES, COLUMN, VIEW]


def test_what_was_applied_is_not_applied_again() -> None:
    assert pending(ALL, had(*ALL)) == []
    assert pending(ALL, had(TABLES, VIEW)) == [COLUMN]


def test_a_view_is_applied_again_when_its_text_changes() -> None:
    newer = Migration(VIEW.name, "CREATE OR REPLACE VIEW v AS SELECT 2;\n")
    assert pending((TABLES, newer), had(TABLES, VIEW)) == [newer]


def test_a_view_that_is_no_more_does_not_matter() -> None:
    assert pending((TABLES,), had(TABLES, VIEW)) == []


def test_a_migration_that_changed_after_it_was_applied_is_refused() -> None:
    with pytest.raises(MigrationError, match=r"0001_tables\.sql is not what this database was made with"):
        pending((Migration(TABLES.name, "CREATE TABLE b;\n"),), had(TABLES))


def test_a_database_of_a_newer_version_is_refused() -> None:
    with pytest.raises(MigrationError, match=r"newer Headrace .*0002_column"):
        pending((TABLES,), had(TABLES, COLUMN))


def test_statements_end_with_a_semicolon_at_the_end_of_a_line_and_comments_do_not_count() -> None:
    text = "-- one; two;\nCREATE TABLE a (x String DEFAULT ';');\n\n  -- more;\nCREATE VIEW b AS\nSELECT 1;"
    assert Migration("x", text).statements == ("CREATE TABLE a (x String DEFAULT ';')", "CREATE VIEW b AS\nSELECT 1")


def test_the_shipped_migrations_have_names_that_put_them_in_order() -> None:
    names = [migration.name for migration in load_migrations()]
    assert names[0] == "0001_facts.sql"
    assert all(migration.statements for migration in load_migrations())
    assert [migration.name for migration in pending(load_migrations(), {})] == names
