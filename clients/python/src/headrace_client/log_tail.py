"""Reading token logs from where they ended before the first submission: a consumer that only assigns, on one thread.

A second consumer finds tenants: a Kafka client that one thread reads from in a loop answers no other thread, for as
long as the loop runs. Until `start` nothing is read: what has not been asked for waits in Kafka, not here.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace_client.clock import monotonic
from headrace_client.contract.topics import requests_topic, tokens_topic
from headrace_client.errors import HeadraceError, LogUnreachable, UnknownTenant

_LOG = logging.getLogger("headrace_client")
_ANSWER_S = 10.0
_POLL_S = 0.1
_MOST_RECORDS = 500
# A partition that was made, or moved, a moment ago.
_LEADERLESS = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_LEADER_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tenant's answers for this producer are. start: the offset from which nothing of them is missed."""

    tenant: str
    requests_topic: str
    partition: int
    start: int

    @property
    def position(self) -> tuple[str, int]:
        return tokens_topic(self.tenant), self.partition


class LogTail:
    """`deliver` gets records, `full` and `drained` say of a tenant when to pause and when to go on, `failed` hears
    that reading has ended for good. All are called on the reading thread.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        deliver: Callable[[Sequence[Message]], None],
        full: Callable[[str], bool],
        drained: Callable[[str], bool],
        paused: Callable[[str], None],
        failed: Callable[[HeadraceError], None],
    ) -> None:
        self._consumer = Consumer(dict(settings))
        self._finder = Consumer(dict(settings))
        self._deliver = deliver
        self._full = full
        self._drained = drained
        self._on_pause = paused
        self._failed = failed
        self._waiting: list[Place] = []
        self._reading: dict[str, Place] = {}
        self._paused: set[str] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def find(self, tenant: str, *, watch: bool) -> Place:
        """Choose a partition for this tenant's answers, note where it ends now, and read it from there once started.

        watch: False: nobody will read it. Blocks for some round trips; for one thread at a time.

        Raises UnknownTenant and LogUnreachable.
        """
        self._partitions(tenant, requests_topic(tenant))
        partition = secrets.randbelow(self._partitions(tenant, tokens_topic(tenant)))
        start = self._end(tokens_topic(tenant), partition) if watch else 0
        place = Place(tenant, requests_topic(tenant), partition, start)
        if watch:
            with self._lock:
                self._waiting.append(place)
        return place

    def start(self) -> None:
        """Begin to read, if that has not begun."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="headrace-results", daemon=True)
                self._thread.start()

    def is_paused(self, tenant: str) -> bool:
        """It is not read, because too much of it waits for a reader."""
        return tenant in self._paused

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._consumer.close()
        self._finder.close()

    def _partitions(self, tenant: str, topic: str) -> int:
        try:
            found = self._finder.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        except KafkaException as error:
            raise LogUnreachable(f"no broker answers about {topic}: {error.args[0]}") from error
        if not found.partitions:
            raise UnknownTenant(f"there is no topic {topic}: register the tenant {tenant} first")
        return len(found.partitions)

    def _end(self, topic: str, partition: int) -> int:
        """Where the log ends, or a little before that (on the embedded broker)."""
        give_up_at = monotonic() + _ANSWER_S
        while True:
            try:
                low, high = self._finder.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or monotonic() >= give_up_at:
                    raise LogUnreachable(f"no broker answers about {topic}: {error.args[0]}") from error
                self._closing.wait(_LEADER_PAUSE_S)
            else:
                return max(int(low), int(high))

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._assign()
                self._pause_and_resume()
                if not self._reading:
                    self._closing.wait(_POLL_S)
                    continue
                # Asked for many, librdkafka waits until it has them all: wait for one, then take what is there.
                if first := self._consumer.consume(1, _POLL_S):
                    self._take(first + self._consumer.consume(_MOST_RECORDS - 1, 0))
        except HeadraceError as error:
            self._failed(error)
        except Exception as error:
            _LOG.exception("reading results has ended")
            self._failed(LogUnreachable(f"reading results has ended: {error}"))

    def _assign(self) -> None:
        with self._lock:
            places, self._waiting = self._waiting, []
        if places:
            self._consumer.incremental_assign([TopicPartition(*place.position, place.start) for place in places])
            self._reading |= {place.tenant: place for place in places}

    def _pause_and_resume(self) -> None:
        for tenant, place in self._reading.items():
            if tenant not in self._paused and self._full(tenant):
                self._consumer.pause([TopicPartition(*place.position)])
                self._paused.add(tenant)
                self._on_pause(tenant)
            elif tenant in self._paused and self._drained(tenant):
                self._paused.discard(tenant)
                self._consumer.resume([TopicPartition(*place.position)])

    def _take(self, messages: list[Message]) -> None:
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.fatal():
                raise KafkaException(error)
            else:
                _LOG.warning("reading results: %s", error.str())
        if records:
            self._deliver(records)
