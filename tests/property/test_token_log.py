"""One request's log, written by workers that crash, come back, repeat themselves and do not know that they are dead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import (
    GenerationFinished,
    GenerationStarted,
    RequestAdmitted,
    TokenLogEvent,
    TokenLogprobs,
    TokensGenerated,
)
from schemas.token_log import TokenLog

TEXTS = ["a", "bc", "", "d", "é", "fgh", "", "i", "😀", "jk"]
OFFSETS = [len("".join(TEXTS[:n])) for n in range(len(TEXTS) + 1)]


def admitted() -> RequestAdmitted:
    return RequestAdmitted(
        request_id="r", tenant="t", at_us=1, reserved_tokens=9, limit_requests=9, remaining_requests=8,
        reset_requests_ms=1, limit_tokens=99, remaining_tokens=90, reset_tokens_ms=1,
    )  # fmt: skip


def started(attempt: int, resumed: int) -> GenerationStarted:
    return GenerationStarted(
        request_id="r", tenant="t", attempt=attempt, at_us=2, pulled_at_us=2, worker="w", deployment="d",
        model_version="m@v1", prompt_tokens=3, resumed_output_tokens=resumed,
    )  # fmt: skip


def tokens(attempt: int, first: int, end: int, *, told: bool = True) -> TokensGenerated:
    return TokensGenerated(
        request_id="r", tenant="t", attempt=attempt, at_us=10 + first, index=first, token_ids=tuple(range(first, end)),
        text_offset_chars=OFFSETS[first], text="".join(TEXTS[first:end]),
        logprobs=tuple(TokenLogprobs(logprob=-float(n), utf8=TEXTS[n].encode(), top=()) for n in range(first, end))
        if told else (),
    )  # fmt: skip


def finished(attempt: int) -> GenerationFinished:
    return GenerationFinished(
        request_id="r", tenant="t", attempt=attempt, at_us=99, worker="w", deployment="d", model_version="m@v1",
        finish_reason="stop", prompt_tokens=3, output_tokens=len(TEXTS), first_token_at_us=10,
    )  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> list[TokenLogEvent]:
    """Worker after worker: each reads the log, goes on from there, and may die; the dead may write on for a while."""
    log: list[TokenLogEvent] = [admitted()]
    zombies: list[TokenLogEvent] = []
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        view = TokenLog()
        for event in log:
            view.apply(event)
        position = len(view.token_ids)
        own: list[TokenLogEvent] = [started(attempt, position)]
        while position < len(TEXTS):
            size = draw(st.integers(1, len(TEXTS) - position))
            own.append(tokens(attempt, position, position + size))
            position += size
        own.append(finished(attempt))
        dies: bool = draw(st.booleans())
        survives = draw(st.integers(0, len(own))) if dies else len(own)
        for event in own[:survives]:
            log.append(event)
            speaks_up: bool = draw(st.booleans())
            if zombies and speaks_up:
                log.append(zombies.pop(0))
            if draw(st.integers(0, 4)) == 0:
                log.append(draw(st.sampled_from(log)))
        zombies = own[survives:]
    return log + zombies


@given(logs())
def test_each_token_counts_once_and_in_order(log: list[TokenLogEvent]) -> None:
    fold = TokenLog()
    counted = [event for event in map(fold.apply, log) if event is not None]
    produced = [event for event in counted if isinstance(event, TokensGenerated)]
    ids = [token for event in produced for token in event.token_ids]
    assert ids == list(range(len(ids)))
    assert "".join(event.text for event in produced) == "".join(TEXTS[: len(ids)]) == fold.text
    assert [entry.logprob for event in produced for entry in event.logprobs] == [-float(token) for token in ids]
    assert [entry.utf8.decode() for entry in fold.logprobs] == TEXTS[: len(ids)]
    assert [event.index for event in produced] == [
        sum(len(before.token_ids) for before in produced[:n]) for n in range(len(produced))
    ]
    ends = [event for event in counted if isinstance(event, GenerationFinished)]
    assert len(ends) <= 1
    assert not ends or counted[-1] is ends[0]


def test_log_probabilities_stop_where_a_writer_told_none() -> None:
    """Those behind the gap could not be told from those in it."""
    fold = TokenLog()
    for event in (tokens(1, 0, 2), tokens(1, 2, 3, told=False), tokens(1, 3, 5)):
        fold.apply(event)
    assert [entry.logprob for entry in fold.logprobs] == [0.0, -1.0]
    assert fold.token_ids == [0, 1, 2, 3, 4]


@given(logs(), st.data())
def test_reading_the_log_twice_changes_nothing(log: list[TokenLogEvent], data: st.DataObject) -> None:
    """A resume may overlap the live tail: records that come again in log order do not count again."""
    cut = data.draw(st.integers(0, len(log)))
    once, overlapped = TokenLog(), TokenLog()
    for event in log:
        once.apply(event)
    for event in log[:cut]:
        overlapped.apply(event)
    back = data.draw(st.integers(0, cut))
    repeated = [overlapped.apply(event) for event in log[back:cut]]
    assert repeated == [None] * len(repeated)
    for event in log[cut:]:
        overlapped.apply(event)
    assert overlapped == once
