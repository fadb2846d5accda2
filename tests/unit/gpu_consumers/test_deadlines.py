from gpu_consumers.deadlines import Deadlines


def test_a_deadline_is_past_from_its_very_microsecond_on() -> None:
    deadlines = Deadlines()
    for request_id, at_us in (("late", 300), ("early", 100), ("zz", 200), ("aa", 200)):
        deadlines.add(request_id, at_us)
    assert deadlines.past(99) == []
    assert deadlines.past(100) == ["early"]
    assert deadlines.past(200) == ["early", "aa", "zz"]
    assert deadlines.next_at_us == 100


def test_a_request_without_a_deadline_and_one_that_left_are_never_past() -> None:
    deadlines = Deadlines()
    deadlines.add("patient", None)
    deadlines.add("gone", 5)
    deadlines.remove("gone")
    deadlines.remove("patient")
    deadlines.remove("never seen")
    assert len(deadlines) == 0
    assert deadlines.next_at_us is None
    assert deadlines.past(1 << 62) == []
