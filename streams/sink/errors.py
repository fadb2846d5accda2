"""What can go wrong between the log and ClickHouse."""

from __future__ import annotations


class SinkError(Exception):
    """Base of all; `code` is stable, the message says what to do."""

    code = "sink"


class ClickHouseUnavailable(SinkError):
    """ClickHouse did not take it now (down, disk full, too many parts): the same again later may work."""

    code = "clickhouse_unavailable"


class LettersWait(SinkError):
    """The log has not acknowledged a batch's dead letters yet: the same again later may work."""

    code = "letters_wait"


class ClickHouseUnusable(SinkError):
    """ClickHouse can't be used as it is set up (path owned by another process, wrong address, wrong password)."""

    code = "clickhouse_unusable"


class MigrationError(SinkError):
    """The database is not one that these migrations lead to."""

    code = "migration"
