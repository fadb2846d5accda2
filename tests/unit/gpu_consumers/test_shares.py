import pytest

from gpu_consumers.presence import Presence
from gpu_consumers.shares import Shares


def shares(total: int, *tenants: str) -> Shares:
    presence = Presence(lambda tenant: 1.0)
    presence.look(0, tenants, lambda tenant: False)
    return Shares(total, presence)


def test_what_is_held_is_counted_by_tenant_and_free_again_when_it_is_let_go() -> None:
    found = shares(10, "a", "b")
    found.hold("a", 3)
    found.grow("a", 2)
    found.hold("b")
    assert (found.held("a"), found.held("b"), found.free, set(found.tenants)) == (5, 1, 4, {"a", "b"})
    found.let_go("a", 5)
    assert (found.held("a"), found.free, set(found.tenants)) == (0, 9, {"b"})


def test_more_than_there_is_is_refused() -> None:
    found = shares(2, "a")
    with pytest.raises(ValueError, match="3 units wanted and 2 free"):
        found.hold("a", 3)


def test_a_tenant_alone_is_neither_above_nor_below() -> None:
    found = shares(8, "a")
    for _ in range(8):
        found.hold("a")
    assert not found.is_above("a")
    assert not found.is_far_below("a")


def test_above_is_more_than_the_share_rounded_up() -> None:
    found = shares(3, "a", "b")
    found.hold("a")
    found.hold("a")
    assert not found.is_above("a"), "a share of 1.5 is worth two"
    found.hold("a")
    assert found.is_above("a")


def test_what_an_only_sequence_holds_is_never_too_much() -> None:
    found = shares(8, "a", "b")
    found.hold("a", 7)
    assert not found.is_above("a")
    found.hold("a", 1)
    assert found.is_above("a")


def test_half_of_its_share_is_not_far_below() -> None:
    found = shares(8, "a", "b")
    found.hold("a")
    assert found.is_far_below("a")
    found.hold("a")
    assert not found.is_far_below("a")


def test_what_is_not_counted_is_nobodys() -> None:
    found = shares(0, "a", "b")
    found.hold("a", 0)
    found.hold("a", 0)
    assert not found.is_above("a")
    assert not found.is_far_below("b")


def test_a_copy_changes_nothing_of_the_original() -> None:
    found = shares(8, "a", "b")
    found.hold("a", 5)
    other = found.copy()
    other.let_go("a", 5)
    assert (found.held("a"), found.free, other.held("a"), other.free) == (5, 3, 0, 8)
