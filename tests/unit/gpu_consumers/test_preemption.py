from collections.abc import Callable
from dataclasses import replace

from gpu_consumers.engine import EngineInfo
from gpu_consumers.preemption import choose_victim, choose_victims, who_gives_way
from gpu_consumers.presence import Presence
from gpu_consumers.running import Running
from gpu_consumers.running_batch import RunningBatch
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


def test_what_lost_its_slot_before_keeps_its_new_one_until_it_has_made_a_token_there() -> None:
    batch = [running("a", 9) for _ in range(3)]
    batch[2].computed_tokens, batch[2].turn = 1, replace(batch[2].turn, resumed=True)
    assert choose_victim(turn("x"), batch, shares_of(batch, "x"), served()) is not batch[2]
    batch[2].output_token_ids.append(5)
    assert choose_victim(turn("x"), batch, shares_of(batch, "x"), served()) is batch[2]


def test_what_could_not_go_on_elsewhere_keeps_its_slot_from_its_first_token_on() -> None:
    batch = [running("flood", computed, -1) for computed in (9, 4, 8)]
    counters, shares = served(), shares_of(batch, "x")
    for newcomer in (turn("x"), turn("x", -1)):
        assert choose_victim(newcomer, batch, shares, counters) is batch[1], "the least work to do again"
    batch[1].resumes = False
    assert choose_victim(turn("x"), batch, shares, counters) is batch[1], "it would begin its prompt again"
    batch[1].output_token_ids.append(5)
    for newcomer in (turn("x"), turn("x", -1)):
        assert choose_victim(newcomer, batch, shares, counters) is batch[2]
    for one in batch:
        one.resumes = False
        one.output_token_ids.append(5)
    for newcomer in (turn("x"), turn("x", -1)):
        assert choose_victim(newcomer, batch, shares, counters) is None, "it waits"


def blocks_of(batch: list[Running], *waiting: str) -> Shares:
    presence = Presence(lambda tenant: 1.0)
    presence.look(0, [*waiting, *(one.tenant for one in batch)], lambda tenant: False)
    shares = Shares(sum(one.blocks for one in batch), presence)
    for one in batch:
        shares.hold(one.tenant, one.blocks)
    return shares


def holding(tenant: str, blocks: int, computed: int) -> Running:
    return Running(turn(tenant), 0, 0, computed, blocks, blocks)


def test_as_many_give_way_as_it_takes_to_make_room() -> None:
    batch = [holding("flood", 2, computed) for computed in (90, 50, 70, 80, 60, 40)]
    found = choose_victims(turn("x"), batch, blocks_of(batch, "x"), 5, served())
    assert found == [batch[5], batch[1], batch[4]]


def test_nobody_gives_way_where_all_that_may_would_not_make_room() -> None:
    batch = [holding("flood", 2, 90), holding("flood", 2, 50), holding("other", 4, 70)]
    assert choose_victims(turn("x"), batch, blocks_of(batch, "x"), 1, served()) == [batch[1]]
    assert choose_victims(turn("x"), batch, blocks_of(batch, "x"), 3, served()) == [], "an only sequence is kept"


def decoding(batch: RunningBatch, tenant: str, arrival: int, *, tokens: int = 4, rank: int = 0) -> Running:
    """One that needs a block more where its tokens fill theirs."""
    found = batch.admit(Turn(Sequence(f"{tenant}{arrival}", tenant, (1,) * tokens, 40), rank, arrival), 0)
    found.computed_tokens = tokens
    found.output_token_ids.append(5)
    return found


def running_batch(blocks: int) -> RunningBatch:
    return RunningBatch(EngineInfo("test", 8, 40, 8, 9, frozenset(), kv_blocks=blocks, block_tokens=4), lambda _: 1.0)


def nobody(tenant: str) -> bool:
    return False


def test_nobody_gives_way_while_blocks_are_free() -> None:
    batch = running_batch(4)
    decoding(batch, "a", 1)
    decoding(batch, "a", 2)
    assert who_gives_way(batch, 8, nobody) == []


def test_the_lowest_class_gives_way_then_who_has_more_than_its_share_then_who_came_last() -> None:
    batch = running_batch(5)
    first = decoding(batch, "a", 1)
    rich = decoding(batch, "b", 2, tokens=3)
    last = decoding(batch, "a", 3, tokens=3)
    low = decoding(batch, "a", 0, tokens=3, rank=1)
    decoding(batch, "c", 4, tokens=3, rank=-1)
    assert first in batch
    assert who_gives_way(batch, 8, lambda tenant: tenant == "b") == [low]
    batch.vacate(low)
    assert who_gives_way(batch, 3, lambda tenant: tenant == "b") == [rich]
    assert who_gives_way(batch, 3, nobody) == [last]


def test_who_needs_a_block_may_be_the_one_that_gives_way() -> None:
    batch = running_batch(2)
    decoding(batch, "a", 1, tokens=3)
    last = decoding(batch, "a", 2)
    assert who_gives_way(batch, 8, nobody) == [last]


def test_what_could_not_go_on_elsewhere_gives_way_after_all_others() -> None:
    batch = running_batch(4)
    kept = decoding(batch, "a", 3, rank=1)
    kept.resumes = False
    first = decoding(batch, "a", 1)
    last = decoding(batch, "a", 2)
    assert who_gives_way(batch, 2, nobody) == [last]
    assert who_gives_way(batch, 1, nobody) == [last, first]
    first.resumes = last.resumes = False
    assert who_gives_way(batch, 2, nobody) == [kept], "no more than may run"


def test_one_is_left_however_few_may_run() -> None:
    batch = running_batch(3)
    for arrival in (3, 1, 2):
        decoding(batch, "a", arrival)
    assert [one.turn.arrival for one in who_gives_way(batch, 1, nobody)] == [3, 2]
