from gpu_consumers.slot_shares import AROUND_US, SlotShares


def shares(slots: int = 8, **weights: float) -> SlotShares:
    return SlotShares(slots, lambda tenant: weights.get(tenant, 1.0))


def nobody_waits(tenant: str) -> bool:
    return False


def test_slots_are_shared_by_the_weights_of_who_is_around() -> None:
    found = shares(a=3.0)
    found.arrived("a")
    found.arrived("b")
    found.look(0, nobody_waits)
    assert (found.share("a"), found.share("b")) == (6.0, 2.0)


def test_a_tenant_alone_is_neither_above_nor_below() -> None:
    found = shares()
    for _ in range(8):
        found.hold("a")
    found.look(0, nobody_waits)
    assert found.is_alone
    assert not found.is_above("a")
    assert not found.is_far_below("a")


def test_above_is_more_than_the_share_rounded_up_and_never_a_single_slot() -> None:
    found = shares(slots=3)
    found.arrived("b")
    found.hold("a")
    found.hold("a")
    found.look(0, nobody_waits)
    assert not found.is_above("a"), "a share of 1.5 is worth two slots"
    found.hold("a")
    assert found.is_above("a")
    assert found.is_far_below("b")
    tight = shares(slots=1)
    tight.arrived("b")
    tight.hold("a")
    tight.look(0, nobody_waits)
    assert not tight.is_above("a")


def test_half_of_its_share_is_not_far_below() -> None:
    found = shares()
    found.arrived("b")
    found.hold("a")
    found.look(0, nobody_waits)
    assert found.is_far_below("a")
    found.hold("a")
    assert not found.is_far_below("a")


def test_who_left_is_around_for_a_while_and_who_waits_or_runs_for_as_long_as_that() -> None:
    found = shares()
    for tenant in ("gone", "waits"):
        found.arrived(tenant)
    found.hold("runs")
    found.look(0, nobody_waits)
    found.look(AROUND_US - 1, nobody_waits)
    assert found.share("runs") == 8 / 3
    found.look(AROUND_US, lambda tenant: tenant == "waits")
    assert found.share("runs") == 4
    found.let_go("runs")
    found.look(2 * AROUND_US, nobody_waits)
    assert found.is_alone


def test_weights_may_change_while_tenants_are_around() -> None:
    weights = {"a": 1.0, "b": 1.0}
    found = SlotShares(8, lambda tenant: weights[tenant])
    found.arrived("a")
    found.arrived("b")
    found.look(0, nobody_waits)
    assert found.share("a") == 4
    weights["a"] = 3.0
    found.weights_changed()
    assert found.share("a") == 6
