"""What validation lets through, what it fills in, and what it refuses with which error."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from models.chat import ChatTurn
from models.errors import ChatTemplateMissingError, ChatTemplateRefusedError, TokenizerNotFoundError
from models.tokenizer import ByteTokenizer, Tokenizer
from schemas.events import (
    AdapterRegistered,
    LogitBias,
    Message,
    ModelRegistered,
    RequestRejected,
    RequestSubmitted,
    RequestValidated,
)
from streams.validate import decide, derive_seed
from tests.unit.streams.samples import NOW_US, model, registry, request_id, submitted


def bytes_of(_model: ModelRegistered) -> Tokenizer:
    return ByteTokenizer()


def accepted(request: RequestSubmitted, **changes: Any) -> RequestValidated:
    decision = decide(request, registry(model(**changes)), bytes_of, now_us=NOW_US)
    assert isinstance(decision, RequestValidated)
    return decision


def refused(request: RequestSubmitted, **changes: Any) -> RequestRejected:
    decision = decide(request, registry(model(**changes)), bytes_of, now_us=NOW_US)
    assert isinstance(decision, RequestRejected)
    assert (decision.request_id, decision.tenant, decision.stage) == (request.request_id, request.tenant, "validate")
    return decision


def test_a_plain_request_is_tokenized_and_everything_left_open_is_filled_in() -> None:
    request = submitted("hi")

    decision = accepted(request)

    assert decision.prompt_token_ids == tuple(b"hi")
    assert (decision.max_output_tokens, decision.temperature, decision.top_p, decision.top_k) == (16, 1.0, 1.0, 0)
    assert decision.seed == derive_seed(request.request_id)
    assert decision.tokenized_for == "chat@v1"
    assert (decision.received_at_us, decision.submitted_at_us) == (request.received_at_us, request.at_us)


def test_what_the_client_chose_is_kept() -> None:
    chosen: dict[str, Any] = {
        "max_output_tokens": 3,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 40,
        "seed": -1,
        "stop": ("\n", "END"),
        "deadline_at_us": NOW_US + 1,
        "end_user": "ann",
        "endpoint": "responses",
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": (LogitBias(token_id=256, bias=-100.0),),
        "top_logprobs": 3,
        "json_schema": '{"type": "object"}',
    }

    decision = accepted(submitted(**chosen), engine="torch")

    assert {name: getattr(decision, name) for name in chosen} == chosen


def test_an_alias_is_tokenized_for_the_version_it_leads_to() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat": [("chat@v2", 100)]})

    decision = decide(submitted(model="chat"), catalog, bytes_of, now_us=NOW_US)

    assert isinstance(decision, RequestValidated)
    assert (decision.model, decision.tokenized_for) == ("chat", "chat@v2")


def test_an_adapter_is_tokenized_for_the_version_that_it_is_for() -> None:
    adapter = AdapterRegistered(adapter="tone@v1", at_us=NOW_US, model_version="chat@v2", location="/a", tenant="acme")
    catalog = registry(model("chat@v1"), model("chat@v2", engine="torch")).apply(adapter)

    decision = decide(submitted(model="tone@v1"), catalog, bytes_of, now_us=NOW_US)

    assert isinstance(decision, RequestValidated)
    assert (decision.model, decision.tokenized_for) == ("tone@v1", "chat@v2")


def test_another_tenants_adapter_is_refused_as_if_there_were_none() -> None:
    adapter = AdapterRegistered(adapter="tone@v1", at_us=NOW_US, model_version="chat@v1", location="/a", tenant="bolt")

    refused_theirs = decide(submitted(model="tone@v1"), registry().apply(adapter), bytes_of, now_us=NOW_US)

    assert refused_theirs == refused(submitted(model="tone@v1"))
    assert isinstance(refused_theirs, RequestRejected)
    assert (refused_theirs.status, refused_theirs.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("wanted", "status", "code", "param"),
    [
        ({"json_schema": '{"type": "objec"}'}, 400, "invalid_json_schema", "json_schema"),
        ({"json_schema": '{"type": "object"}'}, 422, "unsupported_parameter", "json_schema"),
        ({"top_logprobs": 0}, 422, "unsupported_parameter", "top_logprobs"),
        ({"logit_bias": (LogitBias(token_id=257, bias=1.0),)}, 400, "invalid_value", "logit_bias"),
    ],
)
def test_what_the_model_cant_do_with_a_well_formed_request_is_refused_by_name(
    wanted: dict[str, Any], status: int, code: str, param: str
) -> None:
    decision = refused(submitted(**wanted), engine="echo")

    assert (decision.status, decision.code, decision.param) == (status, code, param)


def test_an_unknown_model_is_a_404_that_names_the_models_there_are() -> None:
    decision = refused(submitted(model="gpt-9"))

    assert (decision.status, decision.error_type, decision.code) == (404, "not_found_error", "model_not_found")
    assert decision.param == "model"
    assert "'gpt-9'" in decision.message
    assert "chat@v1" in decision.message


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        ((), "empty_prompt", "messages"),
        ((Message(role="user", content=""),), "empty_prompt", "messages[0].content"),
        ((Message(role="tool", content="x"),), "invalid_role", "messages[0].role"),
        ((Message(role="system", content="x"),), "no_user_message", "messages"),
        (
            (Message(role="user", content="x"), Message(role="assistant", content="")),
            "empty_prompt",
            "messages[1].content",
        ),
    ],
)
def test_malformed_messages_are_a_400_that_names_the_message(
    messages: tuple[Message, ...], code: str, param: str
) -> None:
    decision = refused(submitted(messages=messages))

    assert (decision.status, decision.error_type) == (400, "invalid_request_error")
    assert (decision.code, decision.param) == (code, param)


def test_prompt_and_output_may_fill_the_context_exactly() -> None:
    decision = accepted(submitted("x" * 60, max_output_tokens=40), context_tokens=100)

    assert decision.max_output_tokens == 40


def test_one_token_more_than_the_context_is_a_422_that_says_how_much_fits() -> None:
    decision = refused(submitted("x" * 60, max_output_tokens=41), context_tokens=100)

    assert (decision.status, decision.code) == (422, "context_length_exceeded")
    assert decision.param == "max_output_tokens"
    assert "at most 40" in decision.message


def test_a_default_output_is_cut_to_what_the_prompt_leaves() -> None:
    decision = accepted(submitted("x" * 95), context_tokens=100, default_max_output_tokens=16)

    assert decision.max_output_tokens == 5


@pytest.mark.parametrize("chars", [100, 101])
@pytest.mark.parametrize("max_output_tokens", [None, 1])
def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(chars: int, max_output_tokens: int | None) -> None:
    decision = refused(submitted("x" * chars, max_output_tokens=max_output_tokens), context_tokens=100)

    assert (decision.status, decision.code, decision.param) == (422, "context_length_exceeded", "messages")


@pytest.mark.parametrize(("left_us", "is_refused"), [(-1, True), (0, True), (1, False)])
def test_a_deadline_counts_as_passed_from_its_own_microsecond_on(left_us: int, is_refused: bool) -> None:
    decision = decide(submitted(deadline_at_us=NOW_US + left_us), registry(), bytes_of, now_us=NOW_US)

    assert isinstance(decision, RequestRejected) == is_refused
    if isinstance(decision, RequestRejected):
        assert (decision.status, decision.error_type, decision.code) == (504, "timeout_error", "deadline_exceeded")


def test_a_derived_seed_is_the_same_each_time_and_fits_an_int64() -> None:
    seeds = [derive_seed(request_id(number)) for number in range(100)]

    assert seeds == [derive_seed(request_id(number)) for number in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)


class _Refusing(ByteTokenizer):
    """A tokenizer whose template has an objection."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def encode_chat(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> list[int]:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ChatTemplateRefusedError("roles must alternate"), 400, "chat_template_refused"),
        (ChatTemplateMissingError("has no chat template"), 422, "unsupported_parameter"),
    ],
)
def test_what_the_template_objects_to_is_the_clients_error(error: Exception, status: int, code: str) -> None:
    decision = decide(submitted(), registry(), lambda _: _Refusing(error), now_us=NOW_US)

    assert isinstance(decision, RequestRejected)
    assert (decision.status, decision.code, decision.message) == (status, code, str(error))


def test_a_missing_tokenizer_is_the_servers_fault_and_passes_through() -> None:
    def missing(_model: ModelRegistered) -> Tokenizer:
        raise TokenizerNotFoundError("gone")

    with pytest.raises(TokenizerNotFoundError):
        decide(submitted(), registry(), missing, now_us=NOW_US)


def test_a_template_sees_the_date_of_the_request_and_not_of_its_validation() -> None:
    seen: list[datetime | None] = []

    class Dated(ByteTokenizer):
        def encode_chat(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> list[int]:
            seen.append(at)
            return [1]

    decide(submitted(received_at_us=86_400_000_000), registry(), lambda _: Dated(), now_us=NOW_US)

    assert seen == [datetime(1970, 1, 2, tzinfo=UTC)]


def test_messages_that_come_to_no_tokens_are_refused() -> None:
    class Silent(ByteTokenizer):
        def encode_chat(self, messages: Sequence[ChatTurn], *, at: datetime | None = None) -> list[int]:
            return []

    decision = decide(submitted(), registry(), lambda _: Silent(), now_us=NOW_US)

    assert isinstance(decision, RequestRejected)
    assert decision.code == "empty_prompt"
