from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.client.answer import Answer

ID = "resp_1"


def event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "response_id": ID, "sequence_number": number, **more}


def delta(number: int, text: str) -> dict[str, Any]:
    return event("response.output_text.delta", number, delta=text)


def fold(*events: dict[str, Any]) -> Answer:
    answer = Answer()
    for each in events:
        answer, _ = answer.take(each)
    return answer


def test_the_text_is_what_the_deltas_say_and_the_last_event_gives_the_status() -> None:
    answer = fold(
        {"type": "response.created", "sequence_number": 0, "response": {"id": ID}},
        delta(1, "Hello"),
        delta(2, " there"),
        event("response.completed", 3, response={"id": ID, "usage": {"output_tokens": 2}}),
    )

    assert answer == Answer(ID, "Hello there", 3, "completed", "", 2)
    assert answer.is_over


def test_events_of_another_response_change_nothing() -> None:
    answer = fold(delta(1, "mine"))

    assert answer.take({**delta(2, "yours"), "response_id": "resp_2"}) == (answer, "")


@pytest.mark.parametrize(
    ("ending", "problem"),
    [
        (event("response.failed", 1, response={"id": ID, "error": {"message": "no such model"}}), "no such model"),
        (event("response.failed", 1, error={"message": "too long"}), "too long"),
        (event("response.incomplete", 1, response={"incomplete_details": {"reason": "max_output_tokens"}}),
         "max_output_tokens"),
        (event("response.cancelled", 1), ""),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_whole_says_why(ending: dict[str, Any], problem: str) -> None:
    answer = fold(ending)

    assert answer.status == ending["type"].removeprefix("response.")
    assert answer.problem == problem


def test_an_error_frame_ends_the_answer_with_its_message() -> None:
    answer = fold({"type": "error", "error": {"code": "model_not_found", "message": "There is no model x."}})

    assert (answer.status, answer.problem) == ("failed", "There is no model x.")


def test_nothing_follows_the_end() -> None:
    over = fold(event("response.cancelled", 0))

    assert over.take(delta(1, "late")) == (over, "")


@given(texts=st.lists(st.text(min_size=1)), data=st.data())
def test_events_that_come_again_after_a_resume_are_not_shown_twice(texts: list[str], data: st.DataObject) -> None:
    events = [delta(number, text) for number, text in enumerate(texts)]
    lost_after = data.draw(st.integers(0, len(events)))
    resumed_from = data.draw(st.integers(0, lost_after))

    answer, shown = Answer(), ""
    for each in events[:lost_after] + events[resumed_from:]:
        answer, new = answer.take(each)
        shown += new

    assert shown == answer.text == "".join(texts)
