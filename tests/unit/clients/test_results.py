from __future__ import annotations

import pytest

from headrace_client.backoff import Backoff
from headrace_client.errors import AnswerFailed, DeliveryFailed, RequestRefused
from headrace_client.results import Failed, Finished, NotDelivered, Rejected, answer_of
from tests.client_log import failed, finished, rejected, submission

MINE = submission()


def test_an_answer_is_what_finished_and_everything_else_is_an_error() -> None:
    whole = Finished(MINE, "hi", finished(MINE, 1))
    assert answer_of(whole) is whole
    with pytest.raises(RequestRefused) as refused:
        answer_of(Rejected(MINE, rejected(MINE)))
    assert (refused.value.status, refused.value.code, refused.value.retry_after_ms) == (
        429,
        "requests_per_minute",
        1500,
    )
    with pytest.raises(AnswerFailed) as broken:
        answer_of(Failed(MINE, "", failed(MINE)))
    assert (broken.value.status, broken.value.code) == (500, "engine_failed")
    with pytest.raises(AnswerFailed) as late:
        answer_of(Finished(MINE, "h", finished(MINE, 1, "timeout")))
    assert (late.value.status, late.value.code) == (504, "deadline_exceeded")
    with pytest.raises(DeliveryFailed):
        answer_of(NotDelivered(MINE, DeliveryFailed("gone")))


def test_only_a_rejection_that_says_when_is_tried_again_and_not_before() -> None:
    policy = Backoff(first_s=1.0, attempts=1)
    assert Rejected(MINE, rejected(MINE)).retry_in_s(policy, 0, 0.5) == 2.0
    assert Rejected(MINE, rejected(MINE)).retry_in_s(policy, 1, 0.5) is None
    assert Rejected(MINE, rejected(MINE)).retry_in_s(None, 0, 0.5) is None
    assert Rejected(MINE, rejected(MINE, 503)).retryable
    assert not Rejected(MINE, rejected(MINE, 429, None)).retryable  # an answer that can never fit, say
    assert not Rejected(MINE, rejected(MINE, 400)).retryable


def test_a_submission_gives_back_the_request_that_was_written() -> None:
    assert MINE.request.messages[0].content == "hi"
    assert MINE.response_id == "resp_" + MINE.request_id.replace("-", "")
