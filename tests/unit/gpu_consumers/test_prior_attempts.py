from gpu_consumers.prior_attempts import PriorAttempts
from schemas.events import GenerationFinished, GenerationStarted, TokensGenerated


def started(attempt: int) -> GenerationStarted:
    return GenerationStarted(
        request_id="r", tenant="t", attempt=attempt, at_us=1, pulled_at_us=1, worker="w", deployment="d",
        model_version="m@v1", prompt_tokens=1,
    )  # fmt: skip


def tokens(attempt: int, index: int) -> TokensGenerated:
    return TokensGenerated(
        request_id="r", tenant="t", attempt=attempt, at_us=2, index=index, token_ids=(65,), text_offset_chars=index,
        text="A",
    )  # fmt: skip


def fold(*events: GenerationStarted | TokensGenerated | GenerationFinished) -> PriorAttempts:
    prior = PriorAttempts()
    for event in events:
        prior.apply(event)
    return prior


def test_attempts_that_add_tokens_may_be_many() -> None:
    prior = fold(*(event for n in range(9) for event in (started(n + 1), tokens(n + 1, n))))
    assert (prior.log.attempt, prior.barren_attempts) == (9, 0)
    assert prior.log.text == "A" * 9
    assert not prior.is_deadly


def test_a_request_whose_workers_die_at_the_same_token_is_deadly() -> None:
    assert not fold(started(1), tokens(1, 0), started(2), started(3)).is_deadly
    assert fold(started(1), tokens(1, 0), started(2), started(3), started(4)).is_deadly


def test_tokens_of_a_worker_that_was_taken_for_dead_are_no_progress() -> None:
    prior = fold(started(1), started(2), started(3), tokens(1, 0))
    assert prior.is_deadly
    assert prior.log.token_ids == []


def test_a_repeated_record_is_no_further_attempt() -> None:
    assert fold(started(1), started(1), started(1)).barren_attempts == 1
