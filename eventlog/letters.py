"""Dead letters as an operator sees them: one for each record that could not be read, and what became of it. Pure.

The topic holds more events than that: a consumer that crashed before it committed writes the same letter again, and
each time a letter is requeued, that is an event too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from schemas.codec import Codec
from schemas.errors import ContractError, InvalidName
from schemas.events import DeadLettered, DeadLetterRequeued, Event
from schemas.ids import partition_of
from schemas.topics import SYSTEM, kind_of, tenant_of

REQUEUED_FROM = "headrace_requeued_from"
"""Header of a record that was a dead letter: the letter's origin."""

_ORIGIN = re.compile(r"([A-Za-z0-9._-]{1,249})/(\d{1,9})/(\d{1,18})")


class Origin(NamedTuple):
    """Where a record stood that could not be read: the name of its letter, `requests.acme/0/12`."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidName."""
        found = _ORIGIN.fullmatch(text)
        if found is None:
            raise InvalidName(f"{text!r} names no dead letter: the name is topic/partition/offset, as `list` shows it")
        return cls(found[1], int(found[2]), int(found[3]))

    @classmethod
    def of(cls, event: DeadLettered | DeadLetterRequeued) -> Self:
        """Raises InvalidName for one that no record can have, and no terminal should be shown."""
        return cls.parse(f"{event.origin_topic}/{event.origin_partition}/{event.origin_offset}")

    @property
    def tenant(self) -> str:
        """In whose dead letters it is."""
        return tenant_of(self.topic) or SYSTEM


class Place(NamedTuple):
    """Where an event about a letter stands; dead letters have one partition."""

    topic: str
    offset: int


@dataclass(frozen=True, slots=True)
class Letter:
    """All about a letter but its bytes, which may be many: `place` is where they are to be found.

    at_us: when it was first written. reason, message and consumer are those of the newest time, `times` says how many.
    """

    origin: Origin
    at_us: int
    reason: str
    message: str
    consumer: str
    place: Place
    digest: bytes
    times: int = 1
    requeued: DeadLetterRequeued | None = None

    @property
    def state(self) -> str:
        return "open" if self.requeued is None else "requeued"


def apply(letters: dict[Origin, Letter], event: DeadLettered | DeadLetterRequeued, place: Place) -> None:
    """The next event of a topic of dead letters.

    Other bytes at a known origin are another record: of a topic that was deleted and made again. Raises InvalidName.
    """
    origin = Origin.of(event)
    known = letters.get(origin)
    if isinstance(event, DeadLetterRequeued):
        if known is not None:
            letters[origin] = replace(known, requeued=event)
        return
    letter = Letter(
        origin=origin,
        at_us=event.at_us,
        reason=event.reason,
        message=event.message,
        consumer=event.consumer,
        place=place,
        digest=hashlib.sha256(event.value).digest(),
    )
    if known is not None and known.digest == letter.digest:
        letter = replace(letter, at_us=known.at_us, times=known.times + 1, requeued=known.requeued)
    letters[origin] = letter


def select(
    letters: Iterable[Letter], *, reason: str | None = None, since_us: int | None = None, with_requeued: bool = False
) -> list[Letter]:
    """The letters that are asked for, oldest first. since_us: written then or later."""
    return sorted(
        (
            letter
            for letter in letters
            if (reason is None or letter.reason == reason)
            and (since_us is None or letter.at_us >= since_us)
            and (with_requeued or letter.requeued is None)
        ),
        key=lambda letter: (letter.at_us, letter.origin),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a letter's bytes are to us now.

    event: what they hold, if they can be decoded. problem: why the readers of its topic would not take it even so.
    """

    event: Event | None
    problem: str | None


def read_now(contents: DeadLettered, codec: Codec, *, token_partitions: int) -> Reading:
    """Whether it would be read if it came now: decoded, and where it belongs."""
    try:
        event = codec.decode(contents.value)
    except ContractError as error:
        return Reading(None, str(error))
    return Reading(event, _misplacement(event, contents.origin_topic, token_partitions))


def _misplacement(event: Event, topic: str, token_partitions: int) -> str | None:
    kind = kind_of(topic)
    if kind is None or not isinstance(event, kind.events):
        return f"{topic} holds no {type(event).__name__}"
    tenant = tenant_of(topic)
    if tenant is not None and getattr(event, "tenant", tenant) != tenant:
        return f"an event of another tenant is in {topic}"
    request_id = getattr(event, "request_id", None)
    try:
        if request_id is not None and partition_of(request_id) >= token_partitions:
            return "its request id names a token-log partition that does not exist"
    except InvalidName as error:
        return str(error)
    return None


def refusal(letter: Letter, reading: Reading) -> str | None:
    """Why it should not be written to its topic again; None: nothing speaks against it."""
    topic, partition, _ = letter.origin
    if letter.requeued is not None:
        return f"was requeued already, as {topic}/{partition}/{letter.requeued.requeued_offset}"
    kind = kind_of(topic)
    if kind is None:
        return f"comes from {topic}, which is no topic of ours"
    if kind.retention_ms is None:
        return f"comes from {topic}, which keeps the newest record of each key: it would undo what came after it"
    if reading.problem is None:
        return None
    return f"{'still cannot be read' if reading.event is None else 'would not be taken'}: {reading.problem}"


def requeued_headers(headers: Mapping[str, bytes], origin: Origin) -> list[tuple[str, bytes]]:
    """The record's own headers, and where it comes from."""
    return [*((name, value) for name, value in headers.items() if name != REQUEUED_FROM),
            (REQUEUED_FROM, str(origin).encode())]  # fmt: skip
