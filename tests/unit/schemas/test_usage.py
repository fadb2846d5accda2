"""What counts is what was run."""

from __future__ import annotations

import pytest

from schemas.events import GenerationFailed, GenerationFinished, RequestRejected
from schemas.usage import charged_tokens


def failed(status: int, output_tokens: int) -> GenerationFailed:
    return GenerationFailed(
        request_id="r", tenant="acme", attempt=1, at_us=1, worker="w", deployment="chat-v1", model_version="chat@v1",
        status=status, error_type="", code="", message="", prompt_tokens=10, output_tokens=output_tokens,
    )  # fmt: skip


@pytest.mark.parametrize("reason", ["stop", "length", "cancelled", "timeout"])
def test_an_answer_costs_its_prompt_and_what_there_is_of_it(reason: str) -> None:
    finished = GenerationFinished(
        request_id="r", tenant="acme", attempt=1, at_us=1, worker="w", deployment="chat-v1", model_version="chat@v1",
        finish_reason=reason, prompt_tokens=10, output_tokens=4,
    )  # fmt: skip
    assert charged_tokens(finished) == (10, 4)


@pytest.mark.parametrize(
    ("status", "output_tokens", "charged"),
    [(422, 0, (0, 0)), (400, 0, (0, 0)), (422, 3, (10, 3)), (500, 0, (10, 0)), (500, 3, (10, 3))],
)
def test_a_failure_costs_what_was_run_and_a_refusal_by_a_worker_nothing(
    status: int, output_tokens: int, charged: tuple[int, int]
) -> None:
    assert charged_tokens(failed(status, output_tokens)) == charged


def test_a_rejection_costs_nothing() -> None:
    rejected = RequestRejected(
        request_id="r", tenant="acme", at_us=1, stage="quota", status=429, error_type="", code="", message=""
    )
    assert charged_tokens(rejected) == (0, 0)
