from gpu_consumers.partition import HeldPartition, WaterMarks


def test_it_pauses_at_the_high_mark_and_goes_on_at_the_low_one() -> None:
    partition, marks = HeldPartition("t", 0), WaterMarks(high=3, low=1)
    for offset in range(3):
        assert not partition.should_pause(marks)
        partition.take(offset)
    assert partition.should_pause(marks)
    partition.paused = True
    assert not partition.should_pause(marks)
    partition.tracker.done(1)
    assert not partition.should_resume(marks)
    partition.tracker.done(0)
    assert partition.should_resume(marks)


def test_a_record_that_came_before_is_not_taken_again() -> None:
    partition = HeldPartition("t", 0)
    assert partition.take(5)
    assert not partition.take(5)
    assert not partition.take(4)
    assert partition.take(7)
    assert partition.next_offset == 8
    assert partition.tracker.open_count == 2


def test_until_the_end_of_the_log_is_known_anything_may_have_been_begun() -> None:
    partition = HeldPartition("t", 0)
    assert partition.may_have_begun(1_000)
    partition.fresh_from = 10
    assert partition.may_have_begun(9)
    assert not partition.may_have_begun(10)
