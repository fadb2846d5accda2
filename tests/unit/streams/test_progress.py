"""Order of acknowledgements, and what a second reading finds."""

from __future__ import annotations

from streams.progress import Progress

P = ("requests.acme", 0)
Q = ("requests.acme", 1)


def test_records_are_acknowledged_in_order_although_they_are_done_out_of_order() -> None:
    progress: Progress[str] = Progress()
    for offset, handle in enumerate("abc"):
        assert progress.take(P, offset, handle)

    assert progress.done(P, 1) == []
    assert progress.done(P, 0) == ["a", "b"]
    assert progress.done(P, 2) == ["c"]
    assert progress.open_count == 0


def test_partitions_do_not_wait_for_each_other() -> None:
    progress: Progress[str] = Progress()
    progress.take(P, 5, "p")
    progress.take(Q, 9, "q")

    assert progress.done(Q, 9) == ["q"]
    assert progress.open_count == 1


def test_an_open_record_read_again_is_not_new_and_its_new_handle_is_acknowledged() -> None:
    progress: Progress[str] = Progress()
    progress.take(P, 0, "old")

    assert not progress.take(P, 0, "new")
    assert not progress.is_acknowledged(P, 0)
    assert progress.done(P, 0) == ["new"]


def test_a_done_record_behind_an_open_one_is_acknowledged_with_its_new_handle() -> None:
    progress: Progress[str] = Progress()
    progress.take(P, 0, "a")
    progress.take(P, 1, "b")
    progress.done(P, 1)

    assert not progress.take(P, 1, "b again")
    assert progress.done(P, 0) == ["a", "b again"]


def test_an_acknowledged_record_read_again_is_known() -> None:
    progress: Progress[str] = Progress()
    progress.take(P, 0, "a")
    progress.done(P, 0)

    assert not progress.take(P, 0, "a again")
    assert progress.is_acknowledged(P, 0)
    assert progress.done(P, 0) == []


def test_gaps_between_offsets_are_fine() -> None:
    progress: Progress[str] = Progress()
    progress.take(P, 3, "a")
    progress.take(P, 7, "b")

    assert progress.done(P, 3) == ["a"]
    assert progress.done(P, 7) == ["b"]
    assert progress.next_offset(P) == 8


def test_nothing_is_known_of_a_partition_that_was_never_read() -> None:
    progress: Progress[str] = Progress()

    assert progress.next_offset(P) == 0
    assert not progress.is_acknowledged(P, 0)
