"""Holds requests until their LoRA adapter is in the engine's memory. Pure: plain calls in, plain data out.

What happens to a request:

1. `submit`: it comes with the name of an adapter, and with its registration as of when the request was routed. If the
   order does not tell that, the newest counts; if none is known, it waits a moment for one, as orders and registrations
   travel on topics of their own; then it fails.
2. Its adapter has a place already: it may enter at once, and pins the adapter.
3. Otherwise it waits in line. The adapters that are wanted are read in the order of the line, a few ahead of the places
   that will be free (`GateTurn.reads`; somebody else reads, off the step path). When the weights are there (`arrived`)
   and a place is free or holds an adapter that nobody pins, they are put there (`next_install`, `installed`), and all
   that wait for them enter.
4. `leave`: it ended, was cancelled or dropped, wherever it is. It no longer waits or pins.

Nobody starves: while adapters wait for places, as many of those that have had a place for longest give way. Who runs
on them runs on to the end, but newcomers for them wait in line, behind those who came before, until nobody waits for
a place or they get one again. So adapters take turns, and newcomers for a busy one can't hold its place for ever.

An adapter goes by a key of name and registration: registered anew, it is another one. Requests that are routed from
then on get the new weights. Those that were routed before get the old, whichever worker goes on with them: an answer is
of one adapter from its first token to its last. Where the old weights are gone, as the folder is, or holds the new ones
by now, who needs them fails and is told to send the request again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_consumers.adapter_places import AdapterPlaces
from gpu_consumers.deadlines import Deadlines
from schemas.events import AdapterRegistered

UNKNOWN_US: Final = 5_000_000
"""How long a request waits for the registration of an adapter that nobody has heard of."""

READ_US: Final = 60_000_000
"""How long the weights of one adapter may take to be read, behind those that are read before them."""

READ_AHEAD: Final = 2
"""Adapters that are being read, or were and have no place yet: what may lie in memory beside the places."""

PutWeights = Callable[[int], None]
"""Puts weights into a place. Called on the engine's thread, between two steps."""


def key_of(registration: AdapterRegistered) -> str:
    """Names hold no `#`, so keys of two adapters differ."""
    return f"{registration.adapter}#{registration.at_us}"


_ROUTED_BEFORE: Final = "; it was registered anew since the request was routed: send the request again"


def _overwritten(registration: AdapterRegistered) -> str:
    return f"the weights of {registration.adapter} that were to answer are gone, its folder has others{_ROUTED_BEFORE}"


@dataclass(frozen=True, slots=True)
class GateTurn:
    """What is to be done now. By request id: ready (with the key of its adapter, which it pins) and failed (with the
    reason); expired: past their deadline, and gone from here. reads: to be read, in this order."""

    ready: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    expired: tuple[str, ...] = ()
    reads: tuple[AdapterRegistered, ...] = ()


@dataclass(frozen=True, slots=True)
class Install:
    """Weights that have a place now. evicted: the key of those that were there until now, if any were."""

    key: str
    place: int
    put: PutWeights
    evicted: str | None = None


_NOTHING: Final = GateTurn()


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request in line.

    routed: as of when it was routed; None: the order does not tell. wanted, its key: the registration whose weights it
    waits for; None while its adapter is unknown, which may be so until `unknown_until_us`.
    """

    tenant: str
    adapter: str
    unknown_until_us: int
    routed: AdapterRegistered | None
    wanted: AdapterRegistered | None = None
    key: str | None = None


class AdapterGate:
    """Owned by one thread. `now_us` never goes back."""

    def __init__(self, places: int, *, model_version: str) -> None:
        """places: adapters that the engine holds at once. model_version: which its weights are."""
        self.places: Final = AdapterPlaces(places)
        self._model_version = model_version
        self._registered: dict[str, AdapterRegistered] = {}  # by name
        self._folders: dict[tuple[str, str], int] = {}  # by name and location, when it was registered last
        self._line: dict[str, _Waiting] = {}  # by request id, in order of arrival
        self._deadlines = Deadlines()
        self._holding: dict[str, str] = {}  # request id -> key, of those that entered
        self._reading: dict[str, int] = {}  # key -> until when it may take
        self._read: dict[str, PutWeights] = {}  # key -> weights without a place
        self._ready: dict[str, str] = {}  # told by the next turn, as is `_failed`
        self._failed: dict[str, str] = {}
        self._changed = False

    def __contains__(self, request_id: str) -> bool:
        """Whether it waits here."""
        return request_id in self._line

    @property
    def waiting_count(self) -> int:
        return len(self._line)

    @property
    def next_at_us(self) -> int | None:
        """When `advance` has something to do at the latest, if nothing else happens; 0: now."""
        if self._changed:
            return 0
        times = [waiting.unknown_until_us for waiting in self._line.values() if waiting.key is None]
        times.extend(self._reading.values())
        if (deadline := self._deadlines.next_at_us) is not None:
            times.append(deadline)
        return min(times, default=None)

    def registry_changed(self, adapters: Mapping[str, AdapterRegistered]) -> None:
        """These are registered now, by name."""
        self._registered = dict(adapters)
        self._folders |= {(known.adapter, known.location): known.at_us for known in adapters.values()}
        self.places.set_current(key_of(known) for known in self._registered.values())
        for request_id, waiting in list(self._line.items()):
            self._resolve(request_id, waiting)
        self._forget_unwanted()
        self._changed = True

    def submit(
        self,
        request_id: str,
        *,
        tenant: str,
        adapter: str,
        routed: AdapterRegistered | None = None,
        deadline_at_us: int | None = None,
        now_us: int,
    ) -> None:
        """It waits here from now on; the next turn tells whether it may enter. Raises ValueError if it is here."""
        if request_id in self._line or request_id in self._holding:
            raise ValueError(f"{request_id} is here already")
        waiting = self._line[request_id] = _Waiting(tenant, adapter, now_us + UNKNOWN_US, routed)
        self._deadlines.add(request_id, deadline_at_us)
        self._resolve(request_id, waiting)
        self._changed = True

    def leave(self, request_id: str) -> None:
        """It waits or runs no longer; nothing if it isn't here."""
        self._failed.pop(request_id, None)
        key = self._holding.pop(request_id, None)
        if key is not None:
            self._ready.pop(request_id, None)
            self.places.unpin(key)
            self._changed = True
        elif request_id in self._line:
            self._out_of_line(request_id)
            self._forget_unwanted()

    def arrived(self, key: str, put: PutWeights) -> None:
        """The weights were read; they are let go of if nobody waits for them any more."""
        if self._reading.pop(key, None) is not None and self._wants(key):
            self._read[key] = put
        self._changed = True

    def unreadable(self, key: str, reason: str) -> None:
        """The weights can't be read: those that wait for them fail, and nobody else. Nothing for a read that was given
        up, whose weights may have come by another one since."""
        if self._reading.pop(key, None) is not None:
            self._fail_all(key, reason)

    def not_installed(self, key: str, reason: str) -> None:
        """The weights can't be put where `next_install` said: likewise."""
        self.places.remove(key)
        self._fail_all(key, reason)

    def next_install(self) -> Install | None:
        """What is to be put in its place now; `installed` or `not_installed` has to follow before the next one."""
        if not self._read or not self.places.available:
            return None
        key = next(waiting.key for waiting in self._line.values() if waiting.key in self._read)
        assert key is not None
        place, evicted = self.places.put(key)
        return Install(key, place, self._read.pop(key), evicted)

    def installed(self, key: str) -> None:
        """All that wait for it enter."""
        for request_id, waiting in list(self._line.items()):
            if waiting.key == key:
                self._enter(request_id, key)
        self._changed = True

    def advance(self, now_us: int) -> GateTurn:
        """What is to be done now, after all that `next_install` had was installed."""
        at = self.next_at_us
        if at is None or now_us < at:
            return _NOTHING
        expired = tuple(request_id for request_id in self._deadlines.past(now_us) if request_id in self._line)
        for request_id in expired:
            self._out_of_line(request_id)
        self._give_up_waiting(now_us)
        self._let_in()
        reads = self._begin_reads(now_us)
        self._forget_unwanted()
        turn = GateTurn(self._ready, self._failed, expired, reads)
        self._ready, self._failed, self._changed = {}, {}, False
        return turn

    def check_integrity(self) -> None:
        """Raises AssertionError when the books don't agree."""
        self.places.check_integrity()
        for key in self.places.keys | set(self._holding.values()):
            assert self.places.pins_of(key) == sum(1 for held in self._holding.values() if held == key), "pins differ"
        assert not self._line.keys() & self._holding.keys(), "a request waits and runs"
        assert not self._read.keys() & (self.places.keys | self._reading.keys()), "an adapter is there twice"
        assert not self._reading.keys() & self.places.keys, "an adapter that is in place is read"
        assert len(self._deadlines) <= len(self._line), "a deadline of a request that left"
        assert all(self._wants(key) for key in self._read), "weights that nobody waits for"

    def _resolve(self, request_id: str, waiting: _Waiting) -> None:
        asked = waiting.routed or self._registered.get(waiting.adapter)
        if asked is None:
            waiting.wanted = waiting.key = None
        elif asked.model_version != self._model_version:
            self._fail(
                request_id,
                f"the adapter {waiting.adapter} is one of {asked.model_version}, and this is {self._model_version}",
            )
        elif asked.tenant not in (None, waiting.tenant):
            self._fail(request_id, f"there is no adapter {waiting.adapter} for this tenant")
        elif self._is_overwritten(asked) and key_of(asked) not in self.places:
            self._fail(request_id, _overwritten(asked))
        else:
            waiting.wanted, waiting.key = asked, key_of(asked)

    def _is_superseded(self, asked: AdapterRegistered) -> bool:
        newest = self._registered.get(asked.adapter)
        return newest is not None and newest.at_us > asked.at_us

    def _is_overwritten(self, asked: AdapterRegistered) -> bool:
        """Its folder holds other weights by now: to read it would be to go on with those."""
        return self._folders.get((asked.adapter, asked.location), asked.at_us) > asked.at_us

    def _give_up_waiting(self, now_us: int) -> None:
        late = [key for key, until_us in self._reading.items() if until_us <= now_us]
        for key in late:
            self.unreadable(key, f"its weights were not read within {READ_US // 1_000_000} s")
        for request_id, waiting in list(self._line.items()):
            if waiting.key is None and waiting.unknown_until_us <= now_us:
                self._fail(request_id, f"no adapter {waiting.adapter} is registered")

    def _fail_all(self, key: str, reason: str) -> None:
        for request_id, waiting in list(self._line.items()):
            if waiting.key == key and waiting.wanted is not None:
                again = _ROUTED_BEFORE if self._is_superseded(waiting.wanted) else ""
                self._fail(request_id, f"the adapter {waiting.adapter} can't be loaded: {reason}{again}")
        self._changed = True

    def _let_in(self) -> None:
        wanting = {waiting.key for waiting in self._line.values() if waiting.key is not None} - self.places.keys
        giving_way = self.places.longest(max(0, len(wanting) - self.places.available))
        for request_id, waiting in list(self._line.items()):
            if waiting.key is not None and waiting.key in self.places and waiting.key not in giving_way:
                self._enter(request_id, waiting.key)

    def _begin_reads(self, now_us: int) -> tuple[AdapterRegistered, ...]:
        reads = []
        for request_id, waiting in list(self._line.items()):
            if len(self._reading) + len(self._read) >= READ_AHEAD:
                break
            key, wanted = waiting.key, waiting.wanted
            if key is None or wanted is None or key in self.places or key in self._reading or key in self._read:
                continue
            if self._is_overwritten(wanted):  # since it had a place
                self._fail(request_id, _overwritten(wanted))
            else:
                self._reading[key] = now_us + READ_US
                reads.append(wanted)
        return tuple(reads)

    def _forget_unwanted(self) -> None:
        for key in [key for key in self._read if not self._wants(key)]:
            del self._read[key]

    def _wants(self, key: str) -> bool:
        return any(waiting.key == key for waiting in self._line.values())

    def _enter(self, request_id: str, key: str) -> None:
        self._out_of_line(request_id)
        self.places.pin(key)
        self._holding[request_id] = self._ready[request_id] = key

    def _fail(self, request_id: str, reason: str) -> None:
        self._out_of_line(request_id)
        self._failed[request_id] = reason

    def _out_of_line(self, request_id: str) -> None:
        del self._line[request_id]
        self._deadlines.remove(request_id)
        self._changed = True
