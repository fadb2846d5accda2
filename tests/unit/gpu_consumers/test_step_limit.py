from gpu_consumers.step_limit import StepLimit


def good_steps(limit: StepLimit, count: int) -> None:
    for _ in range(count):
        limit.went_well()


def test_a_step_that_ran_out_of_memory_halves_what_it_had() -> None:
    limit = StepLimit(272)
    limit.ran_out(100)
    assert limit.tokens == 50
    limit.ran_out(3)
    assert limit.tokens == 1


def test_it_grows_back_to_what_it_was_and_no_further() -> None:
    limit = StepLimit(30)
    limit.ran_out(20)
    good_steps(limit, 127)
    assert limit.tokens == 10
    good_steps(limit, 1)
    assert limit.tokens == 20
    good_steps(limit, 1000)
    assert limit.tokens == 30


def test_each_time_memory_runs_out_it_takes_twice_as_long_to_try_again() -> None:
    limit = StepLimit(64)
    for patience in (128, 256, 512):
        limit.ran_out(64)
        good_steps(limit, patience - 1)
        assert limit.tokens == 32
        good_steps(limit, 1)
        assert limit.tokens == 64
