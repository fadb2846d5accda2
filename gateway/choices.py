"""The `n` choices of one answer: requests of their own, made together, and given up together when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from gateway.errors import Overloaded
from gateway.open_response import OpenResponse
from gateway.requests import ClientRequest
from gateway.responses import Responses
from schemas.headers import own_traceparent

GIVEN_UP = "another choice failed"


async def create_choices(
    responses: Responses,
    tenant: str,
    request: ClientRequest,
    *,
    received_at_us: int,
    deadline_at_us: int | None = None,
    traceparent: str | None = None,
) -> list[OpenResponse]:
    """A response for each choice, all in one trace: the client's, or that of the first.

    Raises as `Responses.create` does; those that were made by then are cancelled.
    """

    async def create(index: int, trace: str | None) -> OpenResponse:
        return await responses.create(
            tenant, request.choice(index), received_at_us=received_at_us, deadline_at_us=deadline_at_us,
            traceparent=trace,
        )  # fmt: skip

    first = await create(0, traceparent)
    trace = traceparent or own_traceparent(first.stream.request.request_id).decode()
    others = await asyncio.gather(*(create(index, trace) for index in range(1, request.n)), return_exceptions=True)
    failure = next((other for other in others if isinstance(other, BaseException)), None)
    choices = [first, *(other for other in others if isinstance(other, OpenResponse))]
    if failure is not None:
        await give_up(responses, choices)
        raise failure
    return choices


async def give_up(responses: Responses, choices: Iterable[OpenResponse]) -> None:
    """Cancel those that have not ended, as far as the log takes it."""
    for choice in choices:
        with suppress(Overloaded):
            await responses.cancel(choice, GIVEN_UP)
