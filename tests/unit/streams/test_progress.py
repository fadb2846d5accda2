"""What may be committed, and what a second reading finds."""

from __future__ import annotations

from streams.progress import Progress

P = ("requests.acme", 0)
Q = ("requests.acme", 1)


def test_the_watermark_stays_before_the_first_open_record() -> None:
    progress = Progress()
    for offset in range(3):
        assert progress.take(P, offset)

    progress.done(P, 1)
    assert progress.watermarks() == {P: 0}
    progress.done(P, 0)
    assert progress.watermarks() == {P: 2}
    progress.done(P, 2)
    assert progress.watermarks() == {P: 3}
    assert progress.open_count == 0


def test_partitions_do_not_wait_for_each_other() -> None:
    progress = Progress()
    progress.take(P, 5)
    progress.take(Q, 9)

    progress.done(Q, 9)
    assert progress.watermarks() == {P: 5, Q: 10}
    assert progress.open_count == 1


def test_a_record_read_again_is_not_new_whether_it_is_open_or_done() -> None:
    progress = Progress()
    progress.take(P, 0)
    progress.take(P, 1)
    progress.done(P, 1)

    assert not progress.take(P, 0)
    assert not progress.take(P, 1)
    assert progress.watermarks() == {P: 0}
    progress.done(P, 0)
    assert not progress.take(P, 0)
    assert progress.watermarks() == {P: 2}


def test_gaps_between_offsets_are_fine() -> None:
    progress = Progress()
    progress.take(P, 3)
    progress.take(P, 7)

    progress.done(P, 3)
    assert progress.watermarks() == {P: 7}
    progress.done(P, 7)
    assert progress.watermarks() == {P: 8}
    assert progress.next_offset(P) == 8


def test_nothing_is_known_of_a_partition_that_was_never_read() -> None:
    progress = Progress()

    assert progress.next_offset(P) == 0
    assert progress.watermarks() == {}
