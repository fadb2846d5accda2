"""Headers of a record: CloudEvents 1.0 (Kafka protocol binding, binary mode) and W3C Trace Context, beside our own two.

Generic tools read them without a schema; our own readers pick records by them. `ce_id` is a function of the event:
the same fact written twice (by a retry, by a part that started again) has the same id. The .avsc file lists the fields
that it is made of as `identity`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any
from urllib.parse import quote

from .catalog import full_name, published_schema
from .events import EVENT_TYPES, Event

Headers = list[tuple[str, bytes]]

TRACEPARENT = "traceparent"
# Version, trace, span, flags, and what a version after 00 may have more.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-(7[0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})")
_SAMPLED = 1  # the one flag of version 00, which is what we write
_CACHED_ID_CHARS = 36  # what a well-formed request id has; longer ones are not worth anyone's memory
_SPEC_VERSION = ("ce_specversion", b"1.0")


def headers_of(event: Event, *, source: str, traceparent: bytes | None = None) -> Headers:
    """The headers of this event.

    source: who writes it, a URI reference such as `/headrace/gateway-1`.
    traceparent: of the record that it follows from; without one the trace is the request's own.
    """
    kind, has_request_id, has_tenant = _KINDS[type(event)]
    event_id = event_id_of(event)
    headers = [
        ("ce_id", event_id.encode()),
        ("ce_source", _uri_reference(source)),
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


def event_id_of(event: Event) -> str:
    """`TokensGenerated/<request_id>/1/0/0`: the type, and what tells this fact from others of its type.

    What could be taken for a slash between two values, or does not print, is percent-encoded.
    """
    name, identity, slashes = _IDENTITIES[type(event)]
    event_id = name + "/".join(map(str, values := identity(event)))
    if event_id.count("/") == slashes and "%" not in event_id and event_id.isprintable():
        return event_id
    return name + "/".join(quote(str(value), safe="") for value in values)


def own_traceparent(request_id: str) -> bytes:
    """The trace of a request that came with none: its id is the request's, and so is the span that all follows from."""
    return _cached_trace(request_id) if len(request_id) == _CACHED_ID_CHARS else _trace(request_id)


def continued_traceparent(received: str, request_id: str) -> bytes:
    """The trace that a client sent along, with the request's own span as the parent of what follows.

    What is not a traceparent (W3C Trace Context, level 1) is ignored, as the specification asks. Of a version to come,
    what version 00 has is taken.
    """
    own = own_traceparent(request_id)
    match = _match(received.strip(" \t"))
    if match is None:
        return own
    return f"00-{match[2]}-{own[36:52].decode()}-{int(match[4], 16) & _SAMPLED:02x}".encode()


def is_traceparent(value: bytes) -> bool:
    """Whether a header that some other service wrote may be handed on as it is."""
    return len(value) == 55 and _match(value.decode("ascii", "replace")) is not None


def _match(text: str) -> re.Match[str] | None:
    match = _TRACEPARENT.fullmatch(text)
    if match is None or match[1] == "ff" or not match[2].strip("0") or not match[3].strip("0"):
        return None
    return None if match[1] == "00" and match[5] is not None else match


def _trace(request_id: str) -> bytes:
    if found := _UUID7.fullmatch(request_id):
        first, second, third, fourth, fifth = found.groups()
        return f"00-{first}{second}{third}{fourth}{fifth}-{fourth}{fifth}-01".encode()
    trace = request_id.replace("-", "").lower()
    traceparent = f"00-{trace}-{trace[16:]}-01"
    if _match(traceparent) is None:  # a writer's bad id must not cost it its headers
        return _traceparent_of(request_id)
    return traceparent.encode()


_cached_trace = lru_cache(maxsize=4096)(_trace)


@lru_cache(maxsize=64)
def _uri_reference(source: str) -> bytes:
    return quote(source, safe="/:?#[]@!$&'()*+,;=%").encode()


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


def _kind(event_type: type[Event]) -> tuple[tuple[str, bytes], bool, bool]:
    names = {field["name"] for field in published_schema(event_type)["fields"]}
    return ("ce_type", full_name(event_type).encode()), "request_id" in names, "tenant" in names


def _identity(event_type: type[Event]) -> tuple[str, Callable[[Event], tuple[Any, ...]], int]:
    """What an id begins with, its values, and how many slashes it has."""
    fields = published_schema(event_type)["identity"]
    get = attrgetter(*fields)
    return f"{event_type.__name__}/", get if len(fields) > 1 else lambda event: (get(event),), len(fields)


_KINDS = {event_type: _kind(event_type) for event_type in EVENT_TYPES}
_IDENTITIES = {event_type: _identity(event_type) for event_type in EVENT_TYPES}
