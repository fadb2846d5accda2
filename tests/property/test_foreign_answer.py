"""The fold in docs/examples/foreign_service.py reads every log as schemas/token_log.py does."""

from __future__ import annotations

import runpy
from pathlib import Path

from hypothesis import given

from schemas.events import GenerationFinished, TokenLogEvent
from schemas.token_log import TokenLog
from tests.property.test_token_log import logs

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs/examples/foreign_service.py"))


@given(logs())
def test_a_foreign_services_answer_is_that_of_the_reference(log: list[TokenLogEvent]) -> None:
    reference, answer, text = TokenLog(), EXAMPLE["Answer"](), ""
    for event in log:
        reference.apply(event)
        if answer.end is None:  # the service reads no further
            text += answer.take(type(event).__name__, vars(event))
    assert text == reference.text
    assert (answer.end == "GenerationFinished: stop") == isinstance(reference.terminal, GenerationFinished)
