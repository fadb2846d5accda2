"""The live end of the token logs: one thread, one reader, by assignment.

    loop -> thread   follow, unfollow: answered between two polls
    thread -> loop   what one poll brought for watched requests, in one wake-up; at most HANDED_OVER batches wait for
                     the loop, then the thread stops reading (and librdkafka, in turn, stops fetching)

A partition is read from the end that it has when it is first followed. Watch a request before you ask to follow its
partition: `follow` answers with an offset behind which nothing of that request is missed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import get_args

from eventlog.errors import LogUnreachable
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader, Position
from eventlog.record import OnUnreadable, Record
from schemas.errors import ContractError
from schemas.events import TokenLogEvent

HANDED_OVER = 4
POLL_SECONDS = 0.02  # also how late a command may be heard
FETCH_WAIT_MS = 20  # a partition that is new waits for up to three of them, and meanwhile so do the others
_ANSWER_SECONDS = 2.0
_LEADER_SECONDS = 0.2
_TRIES = 2  # a topic that was just made may have no leader yet
_TOKEN_LOG_EVENTS = get_args(TokenLogEvent)

Deliver = Callable[[Sequence[TokenLogEvent]], None]


@dataclass(frozen=True, slots=True)
class _Follow:
    """Read from `offset` on, unless it is read already; `answer` is resolved on the loop with the next offset."""

    position: Position
    offset: int
    answer: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class _Unfollow:
    position: Position


class LogTail:
    """`deliver` is called on the loop with events of watched requests, in log order, repeats included.

    A record of such a request that can't be read, or is no event of a token log, says nothing: `unreadable` hears of
    the first kind, on the tail's thread.
    """

    def __init__(
        self, profile: BrokerProfile, *, client_id: str, deliver: Deliver, unreadable: OnUnreadable
    ) -> None:  # fmt: skip
        self._profile = profile
        self._client_id = client_id
        self._deliver = deliver
        self._unreadable = unreadable
        self._ends = LogEnds(profile, client_id=f"{client_id}-ends")
        self._followed: set[Position] = set()
        self._watched: set[bytes] = set()
        self._commands: deque[_Follow | _Unfollow] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._room = threading.Semaphore(HANDED_OVER)
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        """Call on the loop that `deliver` belongs to."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def failure(self) -> Exception | None:
        """Why the thread ended, if it ended on its own."""
        return self._failure

    def watch(self, request_id: str) -> None:
        """Deliver this request's events from now on."""
        self._watched.add(request_id.encode())

    def unwatch(self, request_id: str) -> None:
        self._watched.discard(request_id.encode())

    async def follow(self, position: Position) -> int:
        """Read this partition, if it is not read yet. The offset from which on watched requests lose nothing.

        Raises LogUnreachable.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        end = 0 if position in self._followed else await asyncio.to_thread(self._ends.of, position)
        self._followed.add(position)
        self._command(_Follow(position, end, answer))
        return await answer

    def unfollow(self, position: Position) -> None:
        self._followed.discard(position)
        self._command(_Unfollow(position))

    def close(self) -> None:
        """Stop and wait for the thread, which hears of it within one poll."""
        self._stop.set()
        self._wake.set()
        self._room.release()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._ends.close()

    def _command(self, command: _Follow | _Unfollow) -> None:
        self._commands.append(command)
        self._wake.set()

    def _run(self) -> None:
        try:
            with LogReader(self._profile, client_id=self._client_id, fetch_wait_ms=FETCH_WAIT_MS) as reader:
                while not self._stop.is_set():
                    self._wake.clear()
                    self._obey(reader)
                    if reader.assigned:
                        self._hand_over(self._pick(reader.poll(POLL_SECONDS).records))
                    else:
                        self._wake.wait(1.0)
        except Exception as error:
            self._failure = error

    def _obey(self, reader: LogReader) -> None:
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, _Unfollow):
                reader.unassign(*command.position)
                continue
            if command.position not in reader.assigned:
                _learn_leader(reader, command.position)
                reader.assign(*command.position, command.offset)
            self._call(_resolve, command.answer, reader.assigned[command.position])

    def _pick(self, records: list[Record]) -> list[TokenLogEvent]:
        """Events of watched requests; a record's key is its request id, so that no stranger is decoded."""
        events: list[TokenLogEvent] = []
        for record in records:
            if record.key not in self._watched:
                continue
            try:
                event = record.event()
            except ContractError as error:
                self._unreadable(error)
                continue
            if isinstance(event, _TOKEN_LOG_EVENTS):
                events.append(event)
        return events

    def _hand_over(self, events: list[TokenLogEvent]) -> None:
        if not events:
            return
        self._room.acquire()
        if not self._stop.is_set():
            self._call(self._take, events)

    def _take(self, events: list[TokenLogEvent]) -> None:
        self._room.release()
        self._deliver(events)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


class LogEnds:
    """Where partitions end: asked by a reader of its own, so that a slow answer holds up nobody's tokens."""

    def __init__(self, profile: BrokerProfile, *, client_id: str) -> None:
        self._reader = LogReader(profile, client_id=client_id)
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def of(self, position: Position) -> int:
        """The offset that comes next there. Blocking; raises LogUnreachable."""
        with self._lock:
            for _ in range(_TRIES - 1):
                try:
                    return self._reader.bounds(*position, _ANSWER_SECONDS)[1]
                except LogUnreachable:
                    self._closed.wait(0.1)
            return self._reader.bounds(*position, _ANSWER_SECONDS)[1]

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._reader.close()


def _learn_leader(reader: LogReader, position: Position) -> None:
    """Ask this client too before it reads: left alone it finds a new partition's leader on a timer, a second later.

    LogEnds has just had the same answer, so this one comes at once; if not, the timer has to do.
    """
    with suppress(LogUnreachable):
        reader.bounds(*position, _LEADER_SECONDS)


def _resolve(answer: asyncio.Future[int], offset: int) -> None:
    if not answer.done():  # else its waiter was cancelled
        answer.set_result(offset)
