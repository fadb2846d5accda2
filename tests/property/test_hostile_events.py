"""Events that read well and say nonsense, and ids that are none: the folds and parsers take them without harm."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import InvalidName
from schemas.events import TokenLogEvent, TokensGenerated
from schemas.ids import MAX_PARTITION, created_ms_of, partition_of, request_id_of, response_id_of
from schemas.token_log import TokenLog
from tests.property.test_codec import events

LOG_EVENTS = st.sampled_from(get_args(TokenLogEvent)).flatmap(events)
# Small numbers too, so that some of them fit to each other.
TOKENS = st.builds(
    TokensGenerated,
    request_id=st.just("r"), tenant=st.just("t"), attempt=st.integers(-1, 2), at_us=st.just(1),
    index=st.integers(-3, 9), token_ids=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    text_offset_chars=st.integers(-3, 9), text=st.text("ab😀", max_size=4),
)  # fmt: skip
ODD_IDS = st.text(max_size=50) | st.text("0123456789abcdefABCDEF-_+{}x urn:id", min_size=30, max_size=50)


@settings(max_examples=200)
@given(st.lists(LOG_EVENTS | TOKENS, max_size=20))
def test_no_log_takes_back_what_it_has_given(log: list[TokenLogEvent]) -> None:
    state, text = TokenLog(), ""
    token_ids: list[int] = []
    for event in log:
        counted = state.apply(event)
        if isinstance(counted, TokensGenerated):
            assert (counted.index, counted.text_offset_chars) == (len(token_ids), len(text))
            token_ids += counted.token_ids
            text += counted.text
        assert (state.token_ids, state.text, state.text_chars) == (token_ids, text, len(text))
        if state.terminal is not None:
            assert state.apply(event) is None


@settings(max_examples=500)
@given(ODD_IDS | ODD_IDS.map("resp_".__add__))
def test_a_text_is_an_id_of_version_7_or_refused(text: str) -> None:
    try:
        request_id = request_id_of(text)
    except InvalidName:
        return
    assert UUID(request_id).version == 7
    assert request_id == str(UUID(request_id))
    assert request_id_of(response_id_of(request_id)) == request_id


@given(ODD_IDS)
def test_what_is_read_off_an_id_is_in_range(text: str) -> None:
    try:
        partition, created_ms = partition_of(text), created_ms_of(text)
    except InvalidName:
        return
    assert 0 <= partition <= MAX_PARTITION
    assert 0 <= created_ms < 1 << 48
