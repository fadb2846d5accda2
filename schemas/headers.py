"""Headers of a record: CloudEvents 1.0 (Kafka protocol binding, binary mode) and W3C Trace Context, beside our own two.

Generic tools read them without a schema; our own readers pick records by them. `ce_id` is a function of the event:
the same fact written twice (by a retry, by a part that started again) has the same id. The .avsc file lists the fields
that it is made of as `identity`.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from .catalog import full_name, published_schema
from .events import EVENT_TYPES, Event

Headers = list[tuple[str, bytes]]

TRACEPARENT = "traceparent"
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SPEC_VERSION = ("ce_specversion", b"1.0")


def headers_of(event: Event, *, source: str, traceparent: bytes | None = None) -> Headers:
    """The headers of this event.

    source: who writes it, a URI reference such as `/headrace/gateway-1`.
    traceparent: of the record that it follows from; without one the trace is the request's own.
    """
    kind, identity, has_request_id, has_tenant = _KINDS[type(event)]
    values = identity(event)
    event_id = f"{type(event).__name__}/" + ("/".join(map(str, values)) if type(values) is tuple else str(values))
    headers = [
        ("ce_id", event_id.encode()),
        ("ce_source", source.encode()),
        _SPEC_VERSION,
        kind,
        ("ce_time", rfc3339(event.at_us).encode()),
    ]
    fields = event.__dict__
    if has_request_id:
        request_id = fields["request_id"]
        headers.append((TRACEPARENT, traceparent or own_traceparent(request_id)))
        headers.append(("request_id", request_id.encode()))
    else:
        headers.append((TRACEPARENT, traceparent or _traceparent_of(event_id)))
    if has_tenant and (tenant := fields["tenant"]) is not None:
        headers.append(("tenant", tenant.encode()))
    return headers


@lru_cache(maxsize=4096)
def own_traceparent(request_id: str) -> bytes:
    """The trace of a request that came with none: its id is the request's, and so is the span that all follows from."""
    trace = request_id.replace("-", "").lower()
    if not _is_id(trace, 32):  # a writer's bad id must not cost it its headers
        return _traceparent_of(request_id)
    return f"00-{trace}-{trace[16:]}-01".encode()


def continued_traceparent(received: str, request_id: str) -> bytes:
    """The trace that a client sent along, with the request's own span as the parent of what follows.

    What is not a traceparent (W3C Trace Context, level 1) is ignored, as the specification asks.
    """
    match = _TRACEPARENT.fullmatch(received.strip())
    if match is None or match[1] == "ff" or not _is_id(match[2], 32) or not _is_id(match[3], 16):
        return own_traceparent(request_id)
    return f"00-{match[2]}-{request_id.replace('-', '').lower()[16:]}-{match[4]}".encode()


def rfc3339(at_us: int) -> str:
    """`2026-11-30T08:00:00.000001Z`; a time that the calendar does not have is given as the nearest that it has."""
    seconds, micros = divmod(at_us, 1_000_000)
    return f"{_second(seconds)}.{micros:06d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    first, last = -62_135_596_800, 253_402_300_799  # years 1 and 9999
    return datetime.fromtimestamp(min(max(seconds, first), last), UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def _traceparent_of(text: str) -> bytes:
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01".encode()


def _is_id(text: str, digits: int) -> bool:
    return len(text) == digits and all(c in "0123456789abcdef" for c in text) and any(c != "0" for c in text)


def _kind(event_type: type[Event]) -> tuple[tuple[str, bytes], Any, bool, bool]:
    schema = published_schema(event_type)
    names = {field["name"] for field in schema["fields"]}
    return (
        ("ce_type", full_name(event_type).encode()),
        attrgetter(*schema["identity"]),
        "request_id" in names,
        "tenant" in names,
    )


_KINDS = {event_type: _kind(event_type) for event_type in EVENT_TYPES}
