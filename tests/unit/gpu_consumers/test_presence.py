from gpu_consumers.presence import AROUND_US, Presence


def nobody_waits(tenant: str) -> bool:
    return False


def around(*tenants: str, **weights: float) -> Presence:
    presence = Presence(lambda tenant: weights.get(tenant, 1.0))
    for tenant in tenants:
        presence.arrived(tenant)
    presence.look(0, (), nobody_waits)
    return presence


def test_parts_follow_the_weights_of_who_is_around() -> None:
    presence = around("a", "b", a=3.0, c=9.0)
    assert (presence.part("a"), presence.part("b")) == (0.75, 0.25)


def test_one_tenant_is_alone() -> None:
    assert around("a").is_alone
    assert around().is_alone
    assert not around("a", "b").is_alone


def test_who_left_is_around_for_a_while_and_who_waits_or_runs_for_as_long_as_that() -> None:
    presence = around("gone", "waits")
    presence.look(0, ["runs"], nobody_waits)
    presence.look(AROUND_US - 1, ["runs"], nobody_waits)
    assert presence.part("runs") == 1 / 3
    presence.look(AROUND_US, ["runs"], lambda tenant: tenant == "waits")
    assert presence.part("runs") == 1 / 2
    presence.look(2 * AROUND_US, (), nobody_waits)
    assert presence.is_alone


def test_weights_may_change_while_tenants_are_around() -> None:
    weights = {"a": 1.0, "b": 1.0}
    presence = Presence(lambda tenant: weights[tenant])
    presence.look(0, ["a", "b"], nobody_waits)
    assert presence.part("a") == 0.5
    weights["a"] = 3.0
    presence.weights_changed()
    assert presence.part("a") == 0.75
