from __future__ import annotations

import pytest

from gpu_consumers.adapter_places import AdapterPlaces


def test_the_adapter_that_was_used_least_recently_gives_its_place_up() -> None:
    places = AdapterPlaces(3)
    taken = [places.put(key)[0] for key in "abc"]
    assert sorted(taken) == [0, 1, 2]
    places.pin("a")
    places.unpin("a")
    assert places.put("d") == (taken[1], "b")
    assert places.keys == {"a", "c", "d"}


def test_a_pinned_adapter_keeps_its_place_until_the_last_of_its_pins_is_gone() -> None:
    places = AdapterPlaces(1)
    places.put("a")
    places.pin("a")
    places.pin("a")
    assert places.available == 0
    with pytest.raises(ValueError, match="all 1 places are pinned"):
        places.put("b")
    places.unpin("a")
    with pytest.raises(ValueError, match="a is pinned"):
        places.remove("a")
    places.unpin("a")
    assert places.put("b") == (0, "a")


def test_an_adapter_has_one_place() -> None:
    places = AdapterPlaces(2)
    places.put("a")
    with pytest.raises(ValueError, match="a has a place already"):
        places.put("a")


def test_what_nobody_holds_can_not_be_let_go_of() -> None:
    places = AdapterPlaces(1)
    with pytest.raises(ValueError, match="nobody holds a"):
        places.unpin("a")
    places.put("a")
    with pytest.raises(ValueError, match="nobody holds a"):
        places.unpin("a")


def test_what_is_out_of_date_gives_its_place_up_first_when_nobody_holds_it() -> None:
    places = AdapterPlaces(3)
    for key in ("current", "old", "held"):
        places.put(key)
    places.pin("held")
    places.pin("old")
    places.unpin("old")
    places.set_current(["current", "new"])
    assert places.keys == {"current", "old", "held"}
    assert places.put("new")[1] == "old"
    places.unpin("held")
    assert places.put("next")[1] == "held"
    assert places.put("last")[1] == "next", "what came out of date, too"


def test_the_longest_placed_are_told_in_order_whoever_was_used_since() -> None:
    places = AdapterPlaces(3)
    for key in "abc":
        places.put(key)
    places.pin("a")
    assert places.longest(0) == frozenset()
    assert places.longest(2) == {"a", "b"}
    assert places.longest(9) == {"a", "b", "c"}
