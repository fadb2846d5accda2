"""Which HTTP status and content type ClickHouse gives. Pure tables, as in ClickHouse's own server."""

from __future__ import annotations

from infra.clickhouse.errors import ClickHouseFault

_BAD_REQUEST = frozenset(
    {
        "BAD_ARGUMENTS", "CANNOT_COMPILE_REGEXP", "DUPLICATE_COLUMN", "ILLEGAL_COLUMN", "THERE_IS_NO_COLUMN",
        "UNKNOWN_ELEMENT_IN_AST", "UNKNOWN_TYPE_OF_AST_NODE", "TOO_DEEP_AST", "TOO_BIG_AST",
        "UNEXPECTED_AST_STRUCTURE", "SYNTAX_ERROR", "INCORRECT_DATA", "TYPE_MISMATCH",
        "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE",
    }
)  # fmt: skip
_NOT_FOUND = frozenset(
    {
        "UNKNOWN_TABLE", "UNKNOWN_FUNCTION", "UNKNOWN_IDENTIFIER", "UNKNOWN_TYPE", "UNKNOWN_STORAGE",
        "UNKNOWN_DATABASE", "UNKNOWN_SETTING", "UNKNOWN_DIRECTION_OF_SORTING", "UNKNOWN_AGGREGATE_FUNCTION",
        "UNKNOWN_FORMAT", "UNKNOWN_DATABASE_ENGINE", "UNKNOWN_TYPE_OF_QUERY", "UNKNOWN_ROLE",
    }
)  # fmt: skip
_OTHERS = {
    "ACCESS_DENIED": 403,
    "TIMEOUT_EXCEEDED": 408,
    "QUERY_IS_TOO_LARGE": 413,
    "NOT_IMPLEMENTED": 501,
    "TOO_MANY_SIMULTANEOUS_QUERIES": 503,
}

_TEXT = "text/plain; charset=UTF-8"
_CONTENT_TYPES = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "CSVWithNamesAndTypes": "text/csv; charset=UTF-8; header=present",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "XML": "application/xml; charset=UTF-8",
    "Parquet": "application/octet-stream",
    "Native": "application/octet-stream",
    "Arrow": "application/octet-stream",
    "ArrowStream": "application/octet-stream",
    "ORC": "application/octet-stream",
    "Npy": "application/octet-stream",
    "Avro": "application/octet-stream",
}


def http_status(fault: ClickHouseFault) -> int:
    """500 for what is not in the tables, READONLY among it, as ClickHouse does."""
    if fault.name in _BAD_REQUEST or fault.name.startswith("CANNOT_PARSE_"):
        return 400
    if fault.name in _NOT_FOUND:
        return 404
    return _OTHERS.get(fault.name, 500)


def content_type(form: str) -> str:
    """Of an answer in this format."""
    if form in _CONTENT_TYPES:
        return _CONTENT_TYPES[form]
    if form.startswith("RowBinary"):
        return "application/octet-stream"
    if form.startswith(("TabSeparated", "TSV")):
        return _CONTENT_TYPES["TSV"]
    if form.startswith("JSON") and "EachRow" in form:
        return _CONTENT_TYPES["JSONEachRow"]
    return "application/json; charset=UTF-8" if form.startswith("JSON") else _TEXT
