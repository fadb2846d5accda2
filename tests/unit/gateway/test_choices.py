"""Several requests for one answer: all are made, or none is left."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from gateway.choices import GIVEN_UP, create_choices
from gateway.errors import Overloaded
from gateway.open_response import OpenResponse
from gateway.requests import ClientRequest, parse_chat_completion
from gateway.response_stream import ResponseStream
from gateway.responses import Responses
from tests.gateway_events import submitted

ASKED = parse_chat_completion({"model": "chat", "messages": [{"role": "user", "content": "hi"}], "n": 4, "seed": 7})


class FullAt:
    """Responses with room for some seeds only, and a log that takes cancels of some."""

    def __init__(self, *refused: int, log_is_gone: bool = False) -> None:
        self.refused = refused
        self.log_is_gone = log_is_gone
        self.traces: list[str | None] = []
        self.cancelled: list[tuple[int | None, str]] = []

    async def create(
        self, tenant: str, request: ClientRequest, *, received_at_us: int, deadline_at_us: int | None,
        traceparent: str | None,
    ) -> OpenResponse:  # fmt: skip
        if request.seed in self.refused:
            raise Overloaded("no room")
        self.traces.append(traceparent)
        event = replace(submitted(request.seed or 0), seed=request.seed, received_at_us=received_at_us)
        return OpenResponse(ResponseStream(event), tenant, 0.0)

    async def cancel(self, response: OpenResponse, reason: str) -> None:
        self.cancelled.append((response.stream.request.seed, reason))
        if self.log_is_gone:
            raise Overloaded("the log does not answer")


async def made(responses: FullAt, traceparent: str | None = None) -> list[OpenResponse]:
    return await create_choices(
        cast(Responses, responses), "acme", ASKED, received_at_us=1, deadline_at_us=None, traceparent=traceparent
    )


async def test_each_choice_is_made_with_a_seed_of_its_own_in_the_trace_of_the_first() -> None:
    responses = FullAt()
    choices = await made(responses)
    assert [choice.stream.request.seed for choice in choices] == [7, 8, 9, 10]
    first, *others = responses.traces
    assert first is None
    trace = choices[0].stream.request.request_id.replace("-", "")
    assert {other.split("-")[1] for other in others if other is not None} == {trace}
    assert len(others) == 3


async def test_a_trace_of_the_clients_is_that_of_all_choices() -> None:
    responses = FullAt()
    client = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    await made(responses, client)
    assert responses.traces == [client] * 4


@pytest.mark.parametrize("log_is_gone", [False, True])
async def test_when_there_is_no_room_for_one_the_others_are_cancelled(log_is_gone: bool) -> None:
    responses = FullAt(9, log_is_gone=log_is_gone)
    with pytest.raises(Overloaded, match="no room"):
        await made(responses)
    assert responses.cancelled == [(7, GIVEN_UP), (8, GIVEN_UP), (10, GIVEN_UP)]


async def test_when_there_is_no_room_for_the_first_nothing_was_made() -> None:
    responses = FullAt(7)
    with pytest.raises(Overloaded):
        await made(responses)
    assert (responses.traces, responses.cancelled) == ([], [])
