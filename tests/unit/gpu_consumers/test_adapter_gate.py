from __future__ import annotations

from dataclasses import replace

from gpu_consumers.adapter_gate import READ_AHEAD, READ_US, UNKNOWN_US, AdapterGate, GateTurn, key_of
from schemas.events import AdapterRegistered

MODEL = "chat@v1"


def registered(name: str, *, at_us: int = 1, model: str = MODEL, tenant: str | None = None) -> AdapterRegistered:
    return AdapterRegistered(adapter=name, at_us=at_us, model_version=model, location=f"/{name}/{at_us}", tenant=tenant)


class World:
    """A gate with its clock; `read` plays the thread that reads and the engine that installs."""

    def __init__(self, places: int, *names: str) -> None:
        self.gate = AdapterGate(places, model_version=MODEL)
        self.now = 1_000
        self.known = {name: registered(name) for name in names}
        self.gate.registry_changed(self.known)
        self.installed: list[tuple[str, int]] = []

    def register(self, event: AdapterRegistered) -> None:
        self.known[event.adapter] = event
        self.gate.registry_changed(self.known)

    def ask(
        self,
        request_id: str,
        adapter: str,
        *,
        tenant: str = "acme",
        routed: AdapterRegistered | None = None,
        deadline_at_us: int | None = None,
    ) -> None:
        self.gate.submit(
            request_id, tenant=tenant, adapter=adapter, routed=routed, deadline_at_us=deadline_at_us, now_us=self.now
        )

    def turn(self) -> GateTurn:
        while (install := self.gate.next_install()) is not None:
            install.put(install.place)
            self.gate.installed(install.key)
        turn = self.gate.advance(self.now)
        self.gate.check_integrity()
        return turn

    def serve(self) -> dict[str, str]:
        """Turns in which all that is to be read is read at once; who entered."""
        ready: dict[str, str] = {}
        while (turn := self.turn()) != GateTurn():
            ready |= turn.ready
            for read in turn.reads:
                self.arrive(read)
        return ready

    def arrive(self, event: AdapterRegistered) -> None:
        key = key_of(event)
        self.gate.arrived(key, lambda place: self.installed.append((key, place)))


def test_a_request_enters_when_the_weights_of_its_adapter_are_in_place() -> None:
    world = World(2, "tone")
    world.ask("r1", "tone")
    assert world.turn() == GateTurn(reads=(registered("tone"),))
    assert "r1" in world.gate
    assert world.turn() == GateTurn()
    world.arrive(registered("tone"))
    assert world.turn().ready == {"r1": "tone#1"}
    assert "r1" not in world.gate
    assert world.installed == [("tone#1", 0)]


def test_an_adapter_in_place_is_not_read_again() -> None:
    world = World(2, "tone")
    world.ask("r1", "tone")
    world.serve()
    world.gate.leave("r1")
    world.ask("r2", "tone")
    assert world.turn() == GateTurn(ready={"r2": "tone#1"})


def test_requests_of_one_adapter_wait_for_one_read_and_enter_together() -> None:
    world = World(1, "tone")
    for n in range(5):
        world.ask(f"r{n}", "tone")
    assert world.turn().reads == (registered("tone"),)
    world.arrive(registered("tone"))
    assert list(world.turn().ready) == [f"r{n}" for n in range(5)]


def test_only_a_few_adapters_are_read_ahead_of_their_places() -> None:
    names = [f"a{n}" for n in range(6)]
    world = World(2, *names)
    for name in names:
        world.ask(name, name)
    first = world.turn().reads
    assert len(first) == READ_AHEAD
    assert [read.adapter for read in first] == names[:READ_AHEAD]
    assert set(world.serve()) == set()  # what was asked for did not arrive yet
    for read in first:
        world.arrive(read)
    assert set(world.serve()) == {"a0", "a1"}
    assert world.gate.waiting_count == 4


def test_an_adapter_that_nobody_has_heard_of_is_waited_for_a_while() -> None:
    world = World(1)
    world.ask("r1", "tone")
    world.ask("r2", "other")
    assert world.turn() == GateTurn()
    assert world.gate.next_at_us == world.now + UNKNOWN_US
    world.register(registered("tone"))
    assert world.serve() == {"r1": "tone#1"}
    world.now += UNKNOWN_US
    assert world.turn().failed == {"r2": "no adapter other is registered"}


def test_an_adapter_of_another_model_or_another_tenant_is_refused_at_once() -> None:
    world = World(1)
    world.register(registered("foreign", model="chat@v2"))
    world.register(registered("private", tenant="globex"))
    world.ask("r1", "foreign")
    world.ask("r2", "private")
    world.ask("r3", "private", tenant="globex")
    turn = world.turn()
    assert turn.failed == {
        "r1": "the adapter foreign is one of chat@v2, and this is chat@v1",
        "r2": "there is no adapter private for this tenant",
    }
    assert world.serve() == {}
    world.arrive(registered("private", tenant="globex"))
    assert world.turn().ready == {"r3": "private#1"}


def test_weights_that_can_not_be_read_fail_those_who_wait_for_them_and_nobody_else() -> None:
    world = World(2, "bad", "good")
    world.ask("r1", "bad")
    world.ask("r2", "good")
    world.ask("r3", "bad")
    world.turn()
    world.gate.unreadable("bad#1", "no such file")
    world.arrive(registered("good"))
    turn = world.turn()
    assert turn.failed == dict.fromkeys(("r1", "r3"), "the adapter bad can't be loaded: no such file")
    assert turn.ready == {"r2": "good#1"}
    world.ask("r4", "bad")
    assert world.turn().reads == (registered("bad"),), "the next one tries again"


def test_weights_that_the_engine_does_not_take_leave_their_place_free() -> None:
    world = World(1, "bad", "good")
    world.ask("r1", "bad")
    world.ask("r2", "good")
    for read in world.turn().reads:
        world.arrive(read)
    install = world.gate.next_install()
    assert install is not None
    world.gate.not_installed(install.key, "out of memory")
    turn = world.turn()
    assert turn.failed == {"r1": "the adapter bad can't be loaded: out of memory"}
    assert turn.ready == {"r2": "good#1"}


def test_weights_that_take_too_long_fail_those_who_wait_for_them() -> None:
    world = World(1, "slow")
    world.ask("r1", "slow")
    world.turn()
    world.now += READ_US - 1
    assert world.turn() == GateTurn()
    world.now += 1
    assert world.turn().failed == {"r1": "the adapter slow can't be loaded: its weights were not read within 60 s"}
    world.arrive(registered("slow"))
    assert world.gate.next_install() is None, "nobody waits for them any more"


def asked_again_after_a_read_was_given_up() -> World:
    """Two reads of one adapter are on their way: its thread has not come back from the first."""
    world = World(1, "slow", "other")
    world.ask("r1", "slow")
    world.turn()
    world.now += READ_US
    world.turn()
    world.ask("r2", "slow")
    assert world.turn().reads == (registered("slow"),)
    return world


def test_a_read_that_fails_after_it_was_given_up_touches_nobody_who_runs_on_what_another_brought() -> None:
    world = asked_again_after_a_read_was_given_up()
    world.arrive(registered("slow"))
    assert world.turn().ready == {"r2": "slow#1"}
    world.gate.unreadable("slow#1", "no such file")
    assert world.turn() == GateTurn()
    world.gate.leave("r2")
    world.ask("r3", "slow")
    assert world.turn().ready == {"r3": "slow#1"}


def test_a_read_that_fails_after_it_was_given_up_leaves_weights_that_wait_for_a_place() -> None:
    world = asked_again_after_a_read_was_given_up()
    world.ask("o", "other")
    world.turn()
    world.arrive(registered("other"))
    world.turn()  # the only place is pinned now
    world.arrive(registered("slow"))
    world.gate.unreadable("slow#1", "no such file")
    world.gate.leave("o")
    assert world.turn().ready == {"r2": "slow#1"}


def test_who_waits_is_cancelled_or_expires_like_anybody_else() -> None:
    world = World(1, "tone")
    world.ask("r1", "tone", deadline_at_us=world.now + 10)
    world.ask("r2", "tone")
    world.turn()
    assert world.gate.next_at_us == world.now + 10
    world.gate.leave("r2")
    world.now += 10
    assert world.turn().expired == ("r1",)
    assert world.gate.waiting_count == 0
    world.arrive(registered("tone"))
    assert world.turn() == GateTurn()
    assert len(world.gate.places) == 0


def test_newcomers_for_a_busy_adapter_can_not_keep_another_from_its_place() -> None:
    world = World(1, "busy", "rare")
    world.ask("b0", "busy")
    world.serve()
    world.ask("r", "rare")
    served = world.serve()
    waits = 0
    for n in range(1, 50):  # one comes, and the one before it ends
        world.ask(f"b{n}", "busy")
        served |= world.serve()
        world.gate.leave(f"b{n - 1}")
        served |= world.serve()
        if "r" in served:
            break
        waits += 1
    assert waits == 0, "it gets the place when those have ended that ran when it came"
    assert "b1" not in served
    world.gate.leave("r")
    assert world.serve() == {"b1": "busy#1"}, "who came meanwhile is next"


def test_adapters_that_are_not_needed_for_a_place_stay_open_to_newcomers() -> None:
    world = World(2, "old", "young", "rare")
    world.ask("o1", "old")
    world.serve()
    world.ask("y1", "young")
    world.serve()
    world.ask("r1", "rare")
    world.ask("y2", "young")
    world.ask("o2", "old")
    assert world.serve() == {"y2": "young#1"}, "the one that has had its place for longest gives way"
    world.gate.leave("o1")
    assert world.serve() == {"r1": "rare#1"}
    assert "o2" in world.gate, "and waits in line for the next place"
    world.gate.leave("r1")
    assert world.serve() == {"o2": "old#1"}


def test_nobody_gives_way_while_a_place_is_free() -> None:
    world = World(2, "one", "two")
    world.ask("r1", "one")
    world.serve()
    world.ask("r2", "two")
    world.ask("r3", "one")
    assert world.turn().ready == {"r3": "one#1"}, "two is still being read"


def test_who_gives_way_is_free_again_when_nobody_waits_any_more() -> None:
    world = World(1, "one", "two")
    world.ask("r1", "one")
    world.serve()
    world.ask("r2", "two")
    world.ask("r3", "one")
    assert world.serve() == {}
    world.gate.leave("r2")
    assert world.serve() == {"r3": "one#1"}


def test_an_adapter_registered_anew_is_read_anew_and_running_requests_keep_the_old_one() -> None:
    world = World(2, "tone")
    world.ask("r1", "tone")
    world.serve()
    world.register(registered("tone", at_us=2))
    world.ask("r2", "tone")
    assert world.turn().reads == (registered("tone", at_us=2),)
    world.arrive(registered("tone", at_us=2))
    assert world.turn().ready == {"r2": "tone#2"}
    assert world.gate.places.keys == {"tone#1", "tone#2"}
    world.gate.leave("r1")
    world.register(registered("other"))
    world.ask("r3", "other")
    assert world.serve() == {"r3": "other#1"}
    assert world.gate.places.keys == {"tone#2", "other#1"}, "the old weights go first"


def test_who_waits_for_an_adapter_that_is_registered_anew_gets_the_new_one() -> None:
    world = World(1, "tone")
    world.ask("r1", "tone")
    world.turn()
    world.register(registered("tone", at_us=2))
    world.arrive(registered("tone", at_us=1))
    assert world.turn().reads == (registered("tone", at_us=2),)
    world.arrive(registered("tone", at_us=2))
    assert world.turn().ready == {"r1": "tone#2"}


def test_a_request_gets_the_weights_with_which_it_was_routed_whatever_is_registered_since() -> None:
    world = World(2, "tone")
    old, new = registered("tone"), registered("tone", at_us=9)
    world.register(new)
    world.ask("before", "tone", routed=old)
    world.ask("since", "tone", routed=new)
    assert world.serve() == {"before": "tone#1", "since": "tone#9"}
    assert world.installed == [("tone#1", 0), ("tone#9", 1)]


def test_a_request_that_waits_keeps_to_the_weights_with_which_it_was_routed() -> None:
    world = World(1, "tone")
    world.ask("r1", "tone", routed=registered("tone"))
    assert world.turn().reads == (registered("tone"),)
    world.register(registered("tone", at_us=9))
    world.arrive(registered("tone"))
    assert world.turn().ready == {"r1": "tone#1"}


def test_an_order_is_served_before_its_registration_is_heard_of() -> None:
    world = World(2, "tone")
    world.ask("r1", "tone", routed=registered("tone", at_us=9))
    world.ask("r2", "other", routed=registered("other"))
    assert world.serve() == {"r1": "tone#9", "r2": "other#1"}


def test_where_the_earlier_weights_can_not_be_read_any_more_it_says_to_send_the_request_again() -> None:
    world = World(2, "tone")
    world.register(registered("tone", at_us=9))
    world.ask("r1", "tone", routed=registered("tone"))
    world.turn()
    world.gate.unreadable("tone#1", "it is gone")
    assert world.turn().failed == {
        "r1": "the adapter tone can't be loaded: it is gone; it was registered anew since the request was routed: "
        "send the request again"
    }


def overwritten(at_us: int) -> AdapterRegistered:
    return replace(registered("tone"), at_us=at_us)


GONE = (
    "the weights of tone that were to answer are gone, its folder has others; it was registered anew since the request "
    "was routed: send the request again"
)


def test_weights_whose_folder_has_others_by_now_are_not_read_but_stay_with_those_who_have_them() -> None:
    world = World(2, "tone")
    world.ask("runs", "tone", routed=overwritten(1))
    world.serve()
    world.register(overwritten(9))
    world.ask("beside", "tone", routed=overwritten(1))
    assert world.serve() == {"beside": "tone#1"}
    for request_id in ("runs", "beside"):
        world.gate.leave(request_id)
    world.register(registered("other"))
    world.ask("new", "tone", routed=overwritten(9))
    world.ask("other", "other")
    assert world.serve() == {"new": "tone#9", "other": "other#1"}
    world.ask("late", "tone", routed=overwritten(1))
    assert world.turn() == GateTurn(failed={"late": GONE})
    world.register(registered("tone", at_us=11))
    world.ask("later", "tone", routed=overwritten(1))
    assert world.turn().failed == {"later": GONE}, "however often it was registered since"


def test_weights_that_are_overwritten_while_they_are_read_are_not_taken() -> None:
    world = World(1, "tone", "busy")
    world.ask("read", "tone", routed=overwritten(1))
    world.turn()
    world.register(overwritten(9))
    world.arrive(overwritten(1))
    assert (world.turn().failed, world.installed) == ({"read": GONE}, [])


def test_who_waited_for_weights_that_were_overwritten_since_they_gave_their_place_away_fails() -> None:
    world = World(1, "tone", "other")
    world.ask("runs", "tone", routed=overwritten(1))
    world.serve()
    world.register(overwritten(9))
    world.ask("other", "other")
    world.ask("waits", "tone", routed=overwritten(1))
    assert world.serve() == {}, "the place is for another, who waits for its end"
    world.gate.leave("runs")
    assert world.turn() == GateTurn(ready={"other": "other#1"}, failed={"waits": GONE})
