"""Whatever moves, the first tenant is the one that a search through all of them finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_consumers.tenant_order import TenantOrder

TENANT = st.sampled_from("abcdef")
MOVE = st.tuples(st.sampled_from(["put", "grow", "remove", "look", "look past"]), TENANT, st.integers(-5, 5))


@settings(max_examples=200)
@given(moves=st.lists(MOVE, max_size=200))
def test_the_first_tenant_is_always_the_one_of_the_least_key(moves: list[tuple[str, str, int]]) -> None:
    keys: dict[str, float] = {}
    inside: set[str] = set()
    order = TenantOrder(lambda tenant: (keys[tenant],))
    for kind, tenant, number in moves:
        match kind:
            case "put":
                keys[tenant] = number
                order.put(tenant)
                inside.add(tenant)
            case "grow" if tenant in inside:
                keys[tenant] += abs(number)
            case "remove" if tenant in inside:
                order.remove(tenant)
                inside.remove(tenant)
            case "look":
                assert order.first() == min(inside, key=lambda name: (keys[name], name), default=None)
            case "look past":
                others = inside - {tenant}
                found = order.first_but(tenant.__eq__)
                assert found == min(others, key=lambda name: (keys[name], name), default=None)
    assert order.first() == min(inside, key=lambda name: (keys[name], name), default=None)


def test_entries_of_the_past_dont_pile_up() -> None:
    keys = {"a": 0.0, "b": 1.0}
    order = TenantOrder(lambda tenant: (keys[tenant],))
    order.put("a")
    for n in range(10_000):
        keys["b"] = 1.0 + n % 2
        order.put("b")
    assert len(order._heap) < 100
    assert order.first() == "a"
