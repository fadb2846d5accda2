"""One record of the log, read or to be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import cast

from confluent_kafka import Message as KafkaMessage

from schemas.codec import SINGLE_OBJECT, Codec
from schemas.errors import ContractError
from schemas.events import Event
from schemas.headers import TRACEPARENT, is_traceparent

_call_headers = methodcaller("headers")

OnUnreadable = Callable[[ContractError], None]
"""Hears of each record that a reader by assignment could not read and went past."""


def ignored(error: ContractError) -> None:
    """For readers whose count nobody asks for."""


@dataclass(frozen=True, slots=True)
class Record:
    """What stood in the log at (topic, partition, offset). `value` is empty for a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]]
    codec: Codec = field(default=SINGLE_OBJECT, compare=False, repr=False)

    @property
    def place(self) -> str:
        """`requests.acme/0/12`: topic, partition, offset; what its dead letter goes by."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    def event(self) -> Event:
        """The event in it. Raises ContractError (UndecodableEvent, UnknownSchema)."""
        return self.codec.decode(self.value)

    def header(self, name: str) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def traceparent(self) -> bytes | None:
        """The trace that it belongs to, for what follows from it; None where it has none that is valid."""
        found = self.header(TRACEPARENT)
        return found if found is not None and is_traceparent(found) else None

    @classmethod
    def of(cls, message: KafkaMessage, codec: Codec) -> Record:
        """A consumed message (one without an error)."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        headers = _headers(message)
        return cls(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=message.timestamp()[1],
            key=_bytes(message.key()),
            value=_bytes(message.value()) or b"",
            headers=[(name, _bytes(value) or b"") for name, value in headers],
            codec=codec,
        )


def _headers(message: KafkaMessage) -> Sequence[tuple[str, str | bytes | None]]:
    """None of them where one's name is no UTF-8, which brokers take from any client. Only tracing depends on them.

    The library gives a list with holes then, and an error beside it: Python notices that in a call through
    `methodcaller`, but not in a plain one that it has come to know (3.11), and touching the list is a crash. Ask a
    message for its headers here only, and once.
    """
    try:
        return cast(Sequence[tuple[str, str | bytes | None]], _call_headers(message) or [])
    except SystemError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            return []
        raise


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
