"""Whatever arrives, ends, is read or fails, in whatever order: what the gate of adapters promises."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_consumers.adapter_gate import READ_AHEAD, AdapterGate, GateTurn, key_of
from schemas.events import AdapterRegistered

PLACES = 2
ADAPTERS = [f"a{n}" for n in range(5)]
MODEL = "chat@v1"


@dataclass
class Asked:
    """A request as the worker knows it. routed: the registration that its order tells; key: of what it runs on."""

    adapter: str
    number: int
    routed: AdapterRegistered | None = None
    key: str | None = None


class GateMachine(RuleBasedStateMachine):
    """A worker, a thread that reads, and an engine with two places. Adapters are registered anew with a folder of their
    own, or with that of their name, whose weights are others then."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = AdapterGate(PLACES, model_version=MODEL)
        self.now = 1
        self.known: dict[str, AdapterRegistered] = {}
        self.registered: list[AdapterRegistered] = []
        self.folders: dict[str, str] = {}  # whose weights lie in a folder, by key
        self.loaded: dict[str, str] = {}  # what was read for a key
        self.live: dict[str, Asked] = {}
        self.asked = 0
        self.to_read: list[AdapterRegistered] = []
        self.memory: dict[int, str] = {}  # what lies in the engine's places
        for name in ADAPTERS[:-1]:
            self.register(name)

    def register(self, name: str, *, same_folder: bool = True) -> None:
        at_us = self.known[name].at_us + 1 if name in self.known else 1
        location = f"/{name}" if same_folder else f"/{name}/{at_us}"
        event = AdapterRegistered(adapter=name, at_us=at_us, model_version=MODEL, location=location)
        self.known[name] = event
        self.registered.append(event)
        self.folders[location] = key_of(event)
        self.gate.registry_changed(self.known)

    def ask(self, name: str, lifetime_us: int | None = None, routed: AdapterRegistered | None = None) -> str:
        self.asked += 1
        request_id = f"r{self.asked:04}"
        self.live[request_id] = Asked(name, self.asked, routed)
        deadline = None if lifetime_us is None else self.now + lifetime_us
        self.gate.submit(
            request_id, tenant="acme", adapter=name, routed=routed, deadline_at_us=deadline, now_us=self.now
        )
        return request_id

    @property
    def running(self) -> list[str]:
        return [request_id for request_id, asked in self.live.items() if asked.key is not None]

    def turn(self) -> GateTurn:
        while (install := self.gate.next_install()) is not None:
            assert install.key not in self.memory.values(), "an adapter in two places"
            held = self.memory.get(install.place)
            assert all(asked.key != held for asked in self.live.values()) or held is None, "a pinned one was evicted"
            self.memory[install.place] = install.key
            install.put(install.place)
            self.gate.installed(install.key)
        turn = self.gate.advance(self.now)
        for request_id, key in turn.ready.items():
            asked = self.live[request_id]
            assert asked.key is None, "it entered twice"
            assert key.startswith(f"{asked.adapter}#")
            assert asked.routed is None or key == key_of(asked.routed), "another registration than it was routed with"
            assert key in self.memory.values()
            assert self.loaded[key] == key, "the weights of another registration"
            asked.key = key
        for request_id in (*turn.failed, *turn.expired):
            assert self.live.pop(request_id).key is None, "who runs has left the gate"
        self.to_read.extend(turn.reads)
        assert len(self.to_read) <= READ_AHEAD
        self.assert_served_in_order()
        return turn

    def assert_served_in_order(self) -> None:
        """Who waits for an adapter came behind all that the adapter let in when it got its place."""
        waiting = [asked for asked in self.live.values() if asked.key is None]
        for asked in waiting:
            registration = asked.routed or self.known.get(asked.adapter)
            if registration is not None and key_of(registration) in self.gate.places:
                let_in = [other for other in self.live.values() if other.key == key_of(registration)]
                assert all(other.number < asked.number for other in let_in)

    @rule(name=st.sampled_from(ADAPTERS), lifetime_us=st.none() | st.integers(1, 10))
    def a_request_comes(self, name: str, lifetime_us: int | None) -> None:
        self.ask(name, lifetime_us)

    @rule(data=st.data(), lifetime_us=st.none() | st.integers(1, 10))
    def a_request_comes_that_was_routed_with_a_registration(self, data: st.DataObject, lifetime_us: int | None) -> None:
        routed = data.draw(st.sampled_from(self.registered))
        self.ask(routed.adapter, lifetime_us, routed)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def a_request_ends_or_is_cancelled(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        del self.live[request_id]
        self.gate.leave(request_id)

    @precondition(lambda self: self.to_read)
    @rule(good=st.integers(0, 4))
    def weights_are_read(self, good: int) -> None:
        self.finish_read(good=good > 0)

    def finish_read(self, *, good: bool = True) -> None:
        registration = self.to_read.pop(0)
        key = key_of(registration)
        if good:
            read = self.folders[registration.location]
            self.gate.arrived(key, lambda place: self.loaded.update({key: read}))
        else:
            self.gate.unreadable(key, "broken")

    @rule(name=st.sampled_from(ADAPTERS), same_folder=st.booleans())
    def an_adapter_is_registered_anew(self, name: str, same_folder: bool) -> None:
        self.register(name, same_folder=same_folder)

    @rule(step_us=st.integers(1, 5))
    def time_goes_by(self, step_us: int) -> None:
        self.now += step_us

    @rule()
    def the_worker_takes_a_turn(self) -> None:
        self.turn()

    @invariant()
    def the_books_agree(self) -> None:
        self.gate.check_integrity()

    def teardown(self) -> None:
        """Newcomers keep coming for whatever has a place, and the waiting get in all the same."""
        self.register(ADAPTERS[-1])
        waiting = {request_id for request_id, asked in self.live.items() if asked.key is None}
        for _ in range(2 * len(ADAPTERS) + 2):
            while self.turn() != GateTurn() or self.to_read:
                if self.to_read:
                    self.finish_read()
            waiting = {request_id for request_id in waiting if request_id in self.live} - set(self.running)
            if not waiting:
                break
            ending = self.running
            for key in list(self.gate.places.keys):
                self.ask(key.partition("#")[0])
            self.turn()
            for request_id in ending:
                del self.live[request_id]
                self.gate.leave(request_id)
        assert not waiting, "they starve"
        for request_id in list(self.live):
            self.gate.leave(request_id)
        assert self.gate.waiting_count == 0
        assert self.gate.places.available == PLACES, "a place leaked"
        assert self.gate.next_install() is None
        self.gate.check_integrity()


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=100, stateful_step_count=40)
