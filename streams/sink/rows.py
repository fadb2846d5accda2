"""From records to rows, column by column. Pure.

A record becomes exactly one row in exactly one table: `token_events` if it is a TokensGenerated, else `events`; bytes
that can't be decoded are a row of `events` too. Integers are 64 bits wide in both tables wherever Avro lets a foreign
producer write them, so that no record can fail an insert and hold up the others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from schemas.codec import Codec
from schemas.errors import ContractError
from schemas.events import Event, TokensGenerated
from schemas.topics import tenant_of

EVENTS = "events"
TOKEN_EVENTS = "token_events"
TABLES = (TOKEN_EVENTS, EVENTS)

_NO_TIME_US = 0


class Partition(NamedTuple):
    """One partition of the log. log_id names the log: offsets of another log say nothing about this one."""

    log_id: str
    topic: str
    number: int


class Origin(NamedTuple):
    """Where a record stands: the identity of its row."""

    partition: Partition
    offset: int


@dataclass(slots=True)
class Rows:
    """Rows of one table, as columns. `columns` stand in the order of `names`.

    first, last: for each partition, the offsets between which all its rows lie.
    """

    names: ClassVar[tuple[str, ...]] = ()
    table: ClassVar[str] = ""
    columns: tuple[list[Any], ...] = field(init=False)
    first: dict[Partition, int] = field(default_factory=dict)
    last: dict[Partition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = tuple([] for _ in self.names)

    def __len__(self) -> int:
        return len(self.columns[0])

    def append(self, origin: Origin, *values: object) -> None:
        """`values` follow the four columns of the origin."""
        partition, offset = origin
        for column, value in zip(self.columns, (*partition, offset, *values), strict=True):
            column.append(value)
        self.first.setdefault(partition, offset)
        self.last[partition] = offset


class EventRows(Rows):
    table = EVENTS
    names = (
        "log_id", "topic", "partition", "offset", "event_type", "tenant", "request_id", "adapter", "at", "payload",
        "decode_error",
    )  # fmt: skip


class TokenRows(Rows):
    table = TOKEN_EVENTS
    names = (
        "log_id", "topic", "partition", "offset", "tenant", "request_id", "attempt", "index", "tokens", "token_ids",
        "text_offset_chars", "text", "logprobs", "token_utf8", "top_logprobs", "at",
    )  # fmt: skip


def decoded(value: bytes, codec: Codec) -> Event | ContractError:
    """The event in these bytes, or why there is none. A tombstone is none."""
    try:
        return codec.decode(value)
    except ContractError as error:
        return error


def add_tokens(rows: TokenRows, origin: Origin, event: TokensGenerated) -> None:
    rows.append(
        origin, _tenant(origin, event.tenant), event.request_id, event.attempt, event.index, len(event.token_ids),
        event.token_ids, event.text_offset_chars, event.text, [token.logprob for token in event.logprobs],
        [token.utf8 for token in event.logprobs],
        [[(likely.token_id, likely.utf8, likely.logprob) for likely in token.top] for token in event.logprobs],
        event.at_us,
    )  # fmt: skip


def add_event(rows: EventRows, origin: Origin, event: Event) -> None:
    fields = event.__dict__
    rows.append(
        origin, type(event).__name__, _tenant(origin, fields.get("tenant")),
        fields.get("request_id", ""), fields.get("adapter") or "", event.at_us, payload_of(event), "",
    )  # fmt: skip


def add_undecodable(rows: EventRows, origin: Origin, value: bytes, error: ContractError, timestamp_ms: int) -> None:
    at_us = max(timestamp_ms * 1000, _NO_TIME_US)
    rows.append(origin, "", _tenant(origin, None), "", "", at_us, value, error.code if value else "")


def _tenant(origin: Origin, named: str | None) -> str:
    """The tenant whose topic it is; only in shared topics the one that the event names. A broker's ACLs say who may
    write to a tenant's topic, and nobody can write himself into another tenant's figures.
    """
    return tenant_of(origin.partition.topic) or named or ""


def payload_of(event: Event) -> bytes:
    """All fields as JSON in UTF-8: nested records as objects, bytes as base64, times as they are (microseconds)."""
    return json.dumps(event.__dict__, default=_as_json, ensure_ascii=False, separators=(",", ":")).encode()


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return dict(vars(value))


def deduplication_token(rows: Rows) -> str:
    """Names these rows by their offsets: the same rows have the same token, in every attempt to insert them."""
    ranges: Sequence[str] = sorted(f"{'/'.join(map(str, p))}:{rows.first[p]}-{rows.last[p]}" for p in rows.last)
    return f"{','.join(ranges)};{len(rows)}"
