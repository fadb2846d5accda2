"""Messages that could not be read, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class DeadLettered:
    """A message that a consumer could not read; it went on without it."""

    at_us: int
    consumer: str
    reason: str
    message: str
    origin_topic: str
    origin_partition: int
    origin_offset: int
    schema_fingerprint: str | None = None
    key: bytes | None = None
    value: bytes
    schema_id: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeadLetterRequeued:
    """A dead letter's message was written to its origin topic again."""

    at_us: int
    origin_topic: str
    origin_partition: int
    origin_offset: int
    requeued_offset: int
    operator: str
