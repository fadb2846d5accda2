from collections.abc import Callable

from gpu_consumers.preemption import choose_victim
from gpu_consumers.presence import Presence
from gpu_consumers.running import Running
from gpu_consumers.sequence import Sequence
from gpu_consumers.shares import Shares
from gpu_consumers.waiting_queue import Turn


def turn(tenant: str, priority: int = 0) -> Turn:
    return Turn(Sequence(tenant, tenant, (1,), 9, priority=priority), -priority, 1)


def running(tenant: str, computed: int, priority: int = 0) -> Running:
    return Running(turn(tenant, priority), 0, 0, computed)


def shares_of(batch: list[Running], *waiting: str) -> Shares:
    presence = Presence(lambda tenant: 1.0)
    presence.look(0, [*waiting, *(one.tenant for one in batch)], lambda tenant: False)
    shares = Shares(len(batch), presence)
    for one in batch:
        shares.hold(one.tenant)
    return shares


def served(**counters: float) -> Callable[[str], float]:
    return lambda tenant: counters.get(tenant, 0.0)


def test_the_lowest_class_goes_then_the_best_served_tenant_then_the_least_work() -> None:
    batch = [running("a", 1, 1), running("a", 9), running("b", 9), running("b", 5), running("c", 1)]
    counters = served(a=5.0, b=7.0)
    assert choose_victim(turn("x", 2), batch, shares_of(batch, "x"), counters) is batch[3]
    assert choose_victim(turn("x", 1), batch[:1], shares_of(batch[:1], "x"), counters) is None


def test_a_tenant_without_slots_takes_the_newest_of_the_tenant_that_has_most() -> None:
    batch = [running("a", 9), running("a", 9), running("b", 1), running("b", 8), running("b", 4), running("b", 6)]
    assert choose_victim(turn("x"), batch, shares_of(batch, "x"), served()) is batch[2]


def test_a_higher_class_loses_nothing_to_fairness() -> None:
    batch = [running("a", 9, 1), running("a", 8, 1), running("a", 7, 1)]
    assert choose_victim(turn("x"), batch, shares_of(batch, "x"), served()) is None


def test_who_was_served_more_takes_nothing_beyond_the_tolerance() -> None:
    batch = [running("a", 9), running("a", 8), running("a", 7)]
    shares = shares_of(batch, "x")
    assert choose_victim(turn("x"), batch, shares, served(x=10.0)) is None
    assert choose_victim(turn("x"), batch, shares, served(x=10.0), 9.0) is None
    assert choose_victim(turn("x"), batch, shares, served(x=10.0), 10.0) is batch[2]


def test_who_has_half_of_its_share_takes_nothing() -> None:
    batch = [running("x", 9), *(running("a", n) for n in range(3))]
    assert choose_victim(turn("x"), batch, shares_of(batch), served()) is None
