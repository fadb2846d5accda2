import pytest

from gpu_consumers.fair_queue import PATIENCE_US, FairQueue, TokenCosts
from gpu_consumers.sequence import Sequence
from gpu_consumers.waiting_queue import CanFinish


def sequence(
    request_id: str, *, tenant: str | None = None, tokens: int = 10, deadline: int | None = None, priority: int = 0
) -> Sequence:
    """A request of the tenant that its id begins with."""
    return Sequence(
        request_id, tenant or request_id[0], (1,) * tokens, tokens + 10, deadline_at_us=deadline, priority=priority
    )


def always(sequence: Sequence) -> bool:
    return True


def pop(queue: FairQueue, now_us: int = 0, can_finish: CanFinish = always) -> str | None:
    turn = queue.next(now_us, can_finish)
    if turn is None:
        return None
    queue.take(turn)
    queue.check_integrity()
    return turn.sequence.request_id


def drain(queue: FairQueue) -> list[str]:
    order = []
    while (taken := pop(queue)) is not None:
        order.append(taken)
    return order


def test_a_flood_of_one_tenant_leaves_the_others_their_turns() -> None:
    queue = FairQueue()
    for request_id in ("a1", "a2", "a3", "a4", "b1", "b2"):
        queue.push(sequence(request_id))
    assert drain(queue) == ["a1", "b1", "a2", "b2", "a3", "a4"]


def test_long_prompts_count_for_what_they_cost() -> None:
    queue = FairQueue()
    for request_id in ("a1", "a2"):
        queue.push(sequence(request_id, tokens=100))
    for n in range(1, 12):
        queue.push(sequence(f"b{n}", tokens=10))
    assert drain(queue)[:12] == ["a1", *(f"b{n}" for n in range(1, 11)), "a2"]


def test_output_is_charged_at_its_own_price() -> None:
    queue = FairQueue(TokenCosts(input=1.0, output=4.0))
    queue.charge_output("a")
    assert queue.served("a") == 4.0


def test_a_heavier_tenant_gets_its_share_and_a_weight_that_is_no_share_counts_as_one() -> None:
    queue = FairQueue()
    queue.set_weights({"a": 2.0, "b": 0.0})
    for n in range(1, 7):
        queue.push(sequence(f"a{n}"))
        queue.push(sequence(f"b{n}"))
    first = drain(queue)[:9]
    assert sum(request_id.startswith("a") for request_id in first) == 6


def test_a_tenant_that_was_away_gets_no_credit_for_it() -> None:
    queue = FairQueue()
    for n in range(1, 11):
        queue.push(sequence(f"a{n}"))
    for _ in range(8):
        pop(queue)
    for n in range(1, 5):
        queue.push(sequence(f"b{n}"))
    assert drain(queue) == ["a9", "b1", "a10", "b2", "b3", "b4"]


def test_coming_back_to_an_empty_queue_means_to_the_level_of_who_left_last() -> None:
    queue = FairQueue()
    queue.push(sequence("a1", tokens=50))
    pop(queue)
    queue.push(sequence("b1", tokens=5))
    assert queue.served("b") == 50.0


def test_priority_goes_before_fairness_and_deadlines_before_arrival() -> None:
    queue = FairQueue()
    queue.push(sequence("a1"))
    queue.push(sequence("a2", deadline=200))
    queue.push(sequence("a3", deadline=100))
    queue.push(sequence("a4", priority=1))
    queue.push(sequence("b1", tokens=1))
    queue.push(sequence("a5", priority=1, deadline=5))
    assert drain(queue) == ["a5", "a4", "b1", "a3", "a2", "a1"]


def test_what_is_removed_is_not_served_and_may_come_again() -> None:
    queue = FairQueue()
    queue.push(sequence("a1"))
    queue.push(sequence("a2"))
    assert queue.remove("a1")
    assert not queue.remove("a1")
    assert "a1" not in queue
    queue.push(sequence("a1"))
    assert queue.waiting_by_tenant == {"a": 2}
    assert drain(queue) == ["a2", "a1"]
    assert len(queue) == 0


def test_the_same_request_cant_wait_twice() -> None:
    queue = FairQueue()
    queue.push(sequence("a1"))
    with pytest.raises(ValueError, match="a1 is waiting already"):
        queue.push(sequence("a1"))


def test_the_integrity_check_sees_a_request_that_one_view_lost() -> None:
    queue = FairQueue()
    queue.push(sequence("a1"))
    queue.check_integrity()
    queue._places.clear()
    with pytest.raises(AssertionError, match="queues and places differ"):
        queue.check_integrity()


def test_a_class_that_waits_behind_a_higher_one_for_too_long_gets_one_turn() -> None:
    queue = FairQueue()
    for n in range(1, 6):
        queue.push(sequence(f"a{n}", priority=1))
    queue.push(sequence("b1", tokens=1000))
    queue.push(sequence("b2"))
    assert pop(queue, 0) == "a1"
    assert pop(queue, PATIENCE_US - 1) == "a2"
    turn = queue.next(PATIENCE_US, always)
    assert turn is not None
    assert (turn.sequence.request_id, turn.rank) == ("b1", -1)
    assert pop(queue, PATIENCE_US) == "b1"
    assert pop(queue, PATIENCE_US) == "a3"
    assert pop(queue, 2 * PATIENCE_US) == "b2"


def test_a_tenant_that_waits_long_among_equals_has_no_claim_but_its_counter() -> None:
    queue = FairQueue()
    queue.push(sequence("a1", tokens=500))
    queue.push(sequence("a2"))
    assert pop(queue) == "a1"
    for n in range(1, 4):
        queue.push(sequence(f"b{n}"))
    queue.give_back_input("b", 400)
    assert [pop(queue, n * PATIENCE_US) for n in range(4)] == ["b1", "b2", "b3", "a2"]


def test_the_earliest_feasible_deadline_goes_first_and_what_is_too_late_goes_last_of_all() -> None:
    queue = FairQueue()
    queue.push(sequence("a1", deadline=100, priority=1))
    queue.push(sequence("a2", deadline=200))
    queue.push(sequence("a3", deadline=150))
    queue.push(sequence("a4"))
    queue.push(sequence("b1", tokens=1))

    def can_finish(candidate: Sequence) -> bool:
        return candidate.request_id != "a1"

    order = [pop(queue, 0, can_finish) for _ in range(5)]
    assert order == ["a3", "b1", "a2", "a4", "a1"]


def test_what_comes_back_goes_before_its_tenants_others_in_order_of_arrival_and_is_not_charged_again() -> None:
    queue = FairQueue()
    for request_id in ("a1", "a2", "a3"):
        queue.push(sequence(request_id))
    turns = []
    for _ in range(2):
        turn = queue.next(0, always)
        assert turn is not None
        queue.take(turn)
        turns.append(turn)
    queue.push(sequence("a4", deadline=1))
    for turn in reversed(turns):
        queue.put_back(turn, turn.sequence)
    assert queue.served("a") == 20
    assert [pop(queue), pop(queue)] == ["a1", "a2"]
    assert queue.served("a") == 20
    assert [pop(queue), pop(queue)] == ["a4", "a3"]


def test_input_that_need_not_be_run_moves_its_tenant_up() -> None:
    queue = FairQueue()
    for request_id in ("a1", "a2", "b1", "b2"):
        queue.push(sequence(request_id))
    assert [pop(queue), pop(queue)] == ["a1", "b1"]
    queue.give_back_input("b", 8)
    assert drain(queue) == ["b2", "a2"]
