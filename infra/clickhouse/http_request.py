"""What a request to ClickHouse's HTTP interface asks for. Pure: parameters, headers and body in, a Question out.

The statement is the `query` parameter, followed by the body; `param_x` fills `{x:Type}`; what is not reserved is a
setting (https://clickhouse.com/docs/interfaces/http).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email import policy
from email.parser import BytesParser
from typing import cast
from urllib.parse import parse_qsl

from infra.clickhouse.engine import DEFAULT_FORMAT, Question
from infra.clickhouse.errors import ClickHouseFault

_RESERVED = frozenset(
    {
        "query", "database", "default_format", "query_id", "session_id", "session_timeout", "session_check", "user",
        "password", "compress", "decompress", "wait_end_of_query", "buffer_size", "quota_key", "role", "stacktrace",
        "send_progress_in_http_headers", "http_headers_progress_interval_ms", "client_protocol_version",
        "close_session", "enable_http_compression", "add_http_cors_header",
        "cancel_http_readonly_queries_on_client_close",
    }
)  # fmt: skip
_DATABASE_HEADER, _FORMAT_HEADER = "x-clickhouse-database", "x-clickhouse-format"


@dataclass(frozen=True, slots=True)
class HttpQuery:
    """query_id: the client's own name for it, or "" if it gave none."""

    question: Question
    query_id: str


def read_request(parameters: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> HttpQuery:
    """`headers` by lower-case name. Raises ClickHouseFault for what this interface does not speak."""
    content_type = headers.get("content-type", "")
    found = dict(parameters)
    if content_type.startswith("multipart/form-data"):
        found |= _multipart(content_type, body)
        body = b""
    elif content_type.startswith("application/x-www-form-urlencoded") and "query" not in found:
        form = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        if "query" in form:  # curl -d sends this content type with a bare statement too
            found |= form
            body = b""
    if headers.get("content-encoding", "identity") != "identity":
        raise ClickHouseFault(164, "READONLY", "Compressed requests carry inserts, and this interface is read-only.")
    if found.get("compress", "0") not in ("0", "false"):
        raise ClickHouseFault(48, "NOT_IMPLEMENTED", "compress=1 is not spoken here: turn compression off.")
    text = "\n".join(part for part in (found.get("query", ""), body.decode(errors="replace")) if part)
    question = Question(
        text,
        database=found.get("database") or headers.get(_DATABASE_HEADER) or "headrace",
        format=found.get("default_format") or headers.get(_FORMAT_HEADER) or DEFAULT_FORMAT,
        parameters={name[6:]: value for name, value in found.items() if name.startswith("param_")},
        settings={
            name: value for name, value in found.items() if name not in _RESERVED and not name.startswith("param_")
        },
    )
    return HttpQuery(question, found.get("query_id", ""))


def _multipart(content_type: str, body: bytes) -> dict[str, str]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    message = BytesParser(policy=policy.HTTP).parsebytes(head + body)
    fields = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = cast(bytes, part.get_payload(decode=True) or b"")
        if name is not None:
            fields[str(name)] = content.decode(errors="replace")
    return fields
