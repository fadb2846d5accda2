"""The topics of dead letters: reading them, and writing what is in them to where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from eventlog.errors import DeliveryFailed, RecordRefused
from eventlog.letters import Letter, Origin, Place, apply, requeued_headers
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.record import Record
from schemas.errors import ContractError
from schemas.events import DeadLettered, DeadLetterRequeued
from schemas.topics import dead_letters_topic


@dataclass(slots=True)
class LettersFound:
    """unreadable: records in topics of dead letters that are none, of another tenant's topic, or of no place at all."""

    letters: dict[Origin, Letter] = field(default_factory=dict)
    unreadable: int = 0


class DeadLetterLog:
    """Blocking. Every method raises LogUnreachable."""

    def __init__(self, profile: BrokerProfile, *, client_id: str) -> None:
        self._profile = profile
        self._client_id = client_id
        self._producer = EventProducer(profile, client_id=client_id)

    def find(self, topics: Iterable[str]) -> LettersFound:
        """All letters in these topics as they are now, without their bytes."""
        found = LettersFound()
        with LogReader(self._profile, client_id=self._client_id) as reader:
            starts = {(topic, 0): reader.bounds(topic, 0)[0] for topic in topics}
            for record in reader.read_to_end(starts):
                event = _letter_in(record)
                if event is None:
                    found.unreadable += 1
                else:
                    apply(found.letters, event, Place(record.topic, record.offset))
        return found

    def contents(self, letters: Iterable[Letter]) -> Iterator[tuple[Letter, DeadLettered]]:
        """Their bytes, one after the other; those that are gone since they were found are left out."""
        wanted = {letter.place: letter for letter in letters}
        with LogReader(self._profile, client_id=self._client_id) as reader:
            for topic in sorted({place.topic for place in wanted}):
                offsets = {place.offset for place in wanted if place.topic == topic}
                start = max(min(offsets), reader.bounds(topic, 0)[0])
                for record in reader.read_to_end({(topic, 0): start}):
                    letter = wanted.get(Place(topic, record.offset))
                    event = None if letter is None else _letter_in(record)
                    # Anything else stands there only if the topic was deleted and made again meanwhile.
                    if letter is not None and isinstance(event, DeadLettered) and Origin.of(event) == letter.origin:
                        yield letter, event
                    if record.offset >= max(offsets):
                        break
                reader.unassign(topic, 0)

    def requeue(self, letter: Letter, contents: DeadLettered, *, operator: str, now_us: int) -> int:
        """Write the record to the partition that it came from, then the fact that it was; its offset there.

        Between the two a crash leaves the letter open, and its record in the topic. Raises LogBusy and DeliveryFailed.
        """
        offset = self._write(letter.origin, contents)
        event = DeadLetterRequeued(
            at_us=now_us,
            origin_topic=letter.origin.topic,
            origin_partition=letter.origin.partition,
            origin_offset=letter.origin.offset,
            requeued_offset=offset,
            operator=operator,
        )
        failures: list[DeliveryFailed] = []
        self._producer.send(
            letter.place.topic,
            event,
            key=str(letter.origin),
            on_delivery=lambda failure: failures.append(failure) if failure else None,
        )
        if self._producer.flush(35.0) or failures:
            why = failures[0] if failures else "no answer"
            raise DeliveryFailed(f"it is at offset {offset} again, but that could not be noted: {why}")
        return offset

    def close(self) -> None:
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, origin: Origin, contents: DeadLettered) -> int:
        topic, partition, _ = origin
        headers = requeued_headers(contents.headers, origin)
        try:
            return self._producer.write(topic, partition, contents.value, key=contents.key, headers=headers)
        except RecordRefused:
            # A record that filled its topic's limit has no room for one header more.
            own = list(contents.headers.items())
            return self._producer.write(topic, partition, contents.value, key=contents.key, headers=own)


def _letter_in(record: Record) -> DeadLettered | DeadLetterRequeued | None:
    """What a letter says decides where it may be requeued: it must be in its own tenant's topic."""
    try:
        event = record.event()
        if not isinstance(event, DeadLettered | DeadLetterRequeued):
            return None
        return event if dead_letters_topic(Origin.of(event).tenant) == record.topic else None
    except ContractError:
        return None
