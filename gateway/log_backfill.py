"""Reading back what the log says about one request: for a resume that lands on a gateway that did not serve it.

Blocking: run it in a thread. Each call has a reader of its own (5 to 20 ms to set up), and reads from the time in the
request's id, so that the age of the log does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from eventlog.errors import LogUnreachable
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader, Position
from eventlog.record import OnUnreadable, Record
from schemas.errors import ContractError
from schemas.events import Event, RequestSubmitted, TerminalEvent, TokenLogEvent
from schemas.ids import created_ms_of, partition_of
from schemas.topics import Topics, requests_topic, tokens_topic

CLOCK_SKEW_MS = 5_000  # how far the clocks of writers may lie apart
SUBMIT_WINDOW_MS = 60_000  # how long after its id was made a request may reach the log
_IDLE_SECONDS = 10.0
_TOKEN_LOG_EVENTS = get_args(TokenLogEvent)
_TERMINAL_EVENTS = get_args(TerminalEvent)


class LogBackfill:
    """Looks requests up. `stop` ends a call early, with LogUnreachable.

    unreadable: hears of their records that can't be read, on the thread that runs the call.
    """

    def __init__(self, profile: BrokerProfile, topics: Topics, *, client_id: str, unreadable: OnUnreadable) -> None:
        self._profile = profile
        self._topics = topics
        self._client_id = client_id
        self._unreadable = unreadable
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def find_request(self, tenant: str, request_id: str) -> tuple[RequestSubmitted, bytes | None] | None:
        """The request and its traceparent, or None if this tenant has none of this id. Raises LogUnreachable."""
        since_ms = max(0, created_ms_of(request_id) - CLOCK_SKEW_MS)
        topic = requests_topic(tenant)
        with LogReader(self._profile, client_id=self._client_id) as reader:
            starts: dict[Position, int] = {}
            ends: dict[Position, int] = {}
            for partition in range(self._topics.requests):
                starts[topic, partition] = reader.offset_at(topic, partition, since_ms)
                ends[topic, partition] = reader.bounds(topic, partition)[1]
            latest_ms = created_ms_of(request_id) + SUBMIT_WINDOW_MS
            for record in self._read(reader, starts, ends, lambda record: record.timestamp_ms > latest_ms):
                if record.key == request_id.encode():
                    event = self._event(record)
                    if isinstance(event, RequestSubmitted):
                        return event, record.traceparent
        return None

    def token_log(self, tenant: str, request_id: str, until: int) -> list[TokenLogEvent]:
        """The request's events up to this offset, or to its terminal event. Raises LogUnreachable."""
        position = (tokens_topic(tenant), partition_of(request_id))
        key, events = request_id.encode(), list[TokenLogEvent]()
        with LogReader(self._profile, client_id=self._client_id) as reader:
            start = reader.offset_at(*position, max(0, created_ms_of(request_id) - CLOCK_SKEW_MS))
            for record in self._read(reader, {position: start}, {position: until}, lambda record: False):
                event = self._event(record) if record.key == key else None
                if isinstance(event, _TOKEN_LOG_EVENTS):
                    events.append(event)
                    if isinstance(event, _TERMINAL_EVENTS):
                        break
        return events

    def _read(
        self,
        reader: LogReader,
        starts: Mapping[Position, int],
        ends: Mapping[Position, int],
        is_past: Callable[[Record], bool],
    ) -> Iterator[Record]:
        """Records from `starts` to `ends`; a partition ends early at a record that is past what is looked for."""
        open_positions = {position for position in starts if starts[position] < ends[position]}
        for position in open_positions:
            reader.assign(*position, starts[position])
        idle_s = 0.0
        while open_positions:
            batch = reader.poll(0.05)
            for record in batch.records:
                position = (record.topic, record.partition)
                if position in open_positions and is_past(record):
                    open_positions.discard(position)
                    reader.unassign(*position)
                elif position in open_positions:
                    yield record
            for position in list(open_positions):
                if max(reader.assigned[position], batch.ended.get(position, 0)) >= ends[position]:
                    open_positions.discard(position)
                    reader.unassign(*position)
            idle_s = 0.0 if batch.records or batch.ended else idle_s + 0.05
            if idle_s >= _IDLE_SECONDS or self._stopped:
                raise LogUnreachable(f"{sorted(open_positions)} could not be read to {ends}")

    def _event(self, record: Record) -> Event | None:
        try:
            return record.event()
        except ContractError as error:
            self._unreadable(error)
            return None
