"""Whatever a request holds, validation gives an answer: one that fits its model, or a refusal of a published kind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.tokenizer import ByteTokenizer
from schemas.codec import decode, encode
from schemas.events import LogitBias, Message, RequestRejected, RequestSubmitted, RequestValidated
from streams.validate import ROLES, decide
from tests.unit.streams.samples import NOW_US, model, registry, request_id

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
MODEL = model(context_tokens=120, engine="torch")
STATUSES = {400, 404, 422, 504}

requests = st.builds(
    RequestSubmitted,
    request_id=st.integers(0, 2**58 - 1).map(request_id),
    tenant=st.just("acme"),
    at_us=st.just(NOW_US),
    received_at_us=st.just(NOW_US),
    source=st.just("test"),
    model=st.sampled_from(["chat@v1", "chat", "gone"]),
    messages=st.lists(st.builds(Message, role=st.sampled_from([*ROLES, "tool"]) | TEXT, content=TEXT), max_size=4).map(
        tuple
    ),
    max_output_tokens=st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(1, 100),
    temperature=st.none() | st.floats() | st.floats(0, 2),
    top_p=st.none() | st.floats() | st.floats(0, 1, exclude_min=True),
    top_k=st.none() | st.integers(-(2**31), 2**31 - 1),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stop=st.lists(TEXT, max_size=5).map(tuple),
    min_p=st.none() | st.floats() | st.floats(0, 1),
    repetition_penalty=st.none() | st.floats() | st.floats(0, 2, exclude_min=True),
    presence_penalty=st.none() | st.floats() | st.floats(-2, 2),
    frequency_penalty=st.none() | st.floats() | st.floats(-2, 2),
    logit_bias=st.lists(
        st.builds(LogitBias, token_id=st.integers(-1, 260), bias=st.floats() | st.floats(-100, 100)), max_size=3
    ).map(tuple),
    top_logprobs=st.none() | st.integers(-1, 21),
    json_schema=st.none() | st.sampled_from(["{}", "{", '{"type": "object"}']) | TEXT,
    deadline_at_us=st.none() | st.integers(NOW_US - 10, NOW_US + 10),
)


@given(requests)
def test_every_answer_fits_its_schema_and_keeps_its_promises(request: RequestSubmitted) -> None:
    decision = decide(
        request, registry(MODEL, routes={"chat": [("chat@v1", 100)]}), lambda _: ByteTokenizer(), now_us=NOW_US
    )

    assert decode(encode(decision)) == decision
    assert decision.request_id == request.request_id
    if isinstance(decision, RequestValidated):
        assert decision.prompt_token_ids
        assert decision.max_output_tokens >= 1
        assert len(decision.prompt_token_ids) + decision.max_output_tokens <= MODEL.context_tokens
        assert 0 <= decision.temperature <= 2
        assert 0 < decision.top_p <= 1
        assert 0 <= decision.min_p <= 1
        assert 0 < decision.repetition_penalty <= 2
        assert max(abs(decision.presence_penalty), abs(decision.frequency_penalty)) <= 2
        assert all(0 <= bias.token_id <= 256 and abs(bias.bias) <= 100 for bias in decision.logit_bias)
    else:
        assert decision.status in STATUSES
        assert decision.message


@given(requests)
def test_the_same_request_always_gets_the_same_answer(request: RequestSubmitted) -> None:
    catalog = registry(MODEL, routes={"chat": [("chat@v1", 100)]})

    def answer() -> RequestValidated | RequestRejected:
        return decide(request, catalog, lambda _: ByteTokenizer(), now_us=NOW_US)

    # as bytes: NaN in a message is not equal to itself
    assert encode(answer()) == encode(answer())
