"""Keeps a Registry current: reads the control topics from their start, then follows them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from eventlog.errors import LogUnreachable
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader, Position
from eventlog.record import OnUnreadable, Record, ignored
from eventlog.registry import Registry
from schemas.catalog import parsed_schema
from schemas.codec import Codec
from schemas.errors import ContractError
from schemas.events import ControlEvent, SchemaPublished, SchemaRegistered
from schemas.topics import CONTROL_KINDS, CONTROL_SCHEMAS

_SCHEMAS: Position = (CONTROL_SCHEMAS.name, 0)

Listener = Callable[[Registry], None]


class RegistryReader:
    """A thread that follows the control topics. `registry` is always a consistent value; listeners hear of changes.

    The profile's codec learns the ids of schemas from it. Listeners are called on the reader's thread, once with the
    first whole registry and then after each batch.
    """

    def __init__(self, profile: BrokerProfile, *, client_id: str, unreadable: OnUnreadable = ignored) -> None:
        """unreadable: called on the reader's thread."""
        self._profile = profile
        self._client_id = f"{client_id}-registry"
        self._registry = Registry()
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._caught_up = threading.Event()
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._unreadable = unreadable
        self._thread = threading.Thread(target=self._run, name=self._client_id, daemon=True)

    @property
    def registry(self) -> Registry:
        return self._registry

    @property
    def failure(self) -> Exception | None:
        """Why the thread ended, if it ended on its own."""
        return self._failure

    def start(self, timeout_s: float = 30.0) -> Registry:
        """Start and wait until everything that is in the topics now has been read. Raises LogUnreachable."""
        self._thread.start()
        if not self._caught_up.wait(timeout_s):
            self.close()
            raise LogUnreachable(f"the control topics could not be read within {timeout_s:.0f} s")
        if self._failure is not None:
            raise LogUnreachable(f"the control topics could not be read: {self._failure}") from self._failure
        return self._registry

    def listen(self, listener: Listener) -> None:
        """Call on every change from now on, and once at once."""
        with self._lock:
            self._listeners.append(listener)
            listener(self._registry)

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        try:
            with LogReader(self._profile, client_id=self._client_id) as reader:
                starts: dict[Position, int] = {(kind.name, 0): reader.bounds(kind.name, 0)[0] for kind in CONTROL_KINDS}
                if reader.bounds(*_SCHEMAS)[1] > starts[_SCHEMAS]:
                    starts[_SCHEMAS] = self._learn_schemas(starts[_SCHEMAS])
                self._follow(reader, starts)
        except Exception as error:
            self._failure = error
        finally:
            self._caught_up.set()

    def _learn_schemas(self, start: int) -> int:
        """Before all else: what the other topics hold may be in Confluent framing. The offset that comes next.

        With a reader of its own, whose waiting fetch holds up nobody.
        """
        with LogReader(self._profile, client_id=self._client_id) as reader:
            for record in reader.read_to_end({_SCHEMAS: start}):
                if self._stop.is_set():
                    break
                self._apply([record])
                start = record.offset + 1
        return start

    def _follow(self, reader: LogReader, starts: dict[Position, int]) -> None:
        reader.assign_all(starts, watch_end=True)
        behind = set(starts)
        while not self._stop.is_set():
            batch = reader.poll(0.1)
            self._apply(sorted(batch.records, key=lambda record: record.topic != CONTROL_SCHEMAS.name))
            behind -= set(batch.ended)
            if not behind:
                self._caught_up.set()

    def _apply(self, records: list[Record]) -> None:
        registry = self._registry
        for record in records:
            if not record.value:
                continue
            try:
                event = record.event()
            except ContractError as error:
                self._unreadable(error)
                continue
            if isinstance(event, SchemaPublished | SchemaRegistered):
                _teach(self._profile.codec, event)
            if isinstance(event, ControlEvent):
                registry = registry.apply(event)
        if registry is not self._registry:
            with self._lock:
                self._registry = registry
                for listener in self._listeners:
                    listener(registry)


def _teach(codec: Codec, event: SchemaPublished | SchemaRegistered) -> None:
    """A schema that no event here can be read with, a newer release's new event, is passed over; so are its events."""
    with suppress(ContractError):
        if isinstance(event, SchemaPublished):
            codec.learn_published(event.fingerprint, parsed_schema(event.avro))
        elif not codec.learn_ours(event.schema_id, event.fingerprint) and event.avro:
            codec.learn(event.schema_id, parsed_schema(event.avro))
