"""The HTTP endpoints that make, show and cancel responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from eventlog.clock import now_us
from gateway.auth import authenticate, bearer
from gateway.body import read_json
from gateway.chat_completions import ChatCompletion, TextCompletion
from gateway.choices import create_choices, give_up
from gateway.edge import Edge
from gateway.errors import InvalidRequest, Overloaded
from gateway.open_response import OpenResponse, until
from gateway.requests import ClientRequest, parse_chat_completion, parse_completion, parse_response_create
from gateway.response_stream import ResponseStream
from gateway.session import check_starting_after
from gateway.sse import EventStream, data_only, response_events
from schemas.headers import TRACEPARENT

CANCEL_SECONDS = 2.0  # how long a cancel waits for the log to say so before it answers with what there is


async def create_response(request: Request) -> Response:
    """POST /v1/responses."""
    edge, responses, asked = await _create(request, parse_response_create)
    stream = responses[0].stream
    if asked.stream:
        await _beginning(edge, request, responses)
        return EventStream(edge, responses, response_events(stream), headers=answer_headers([stream]))
    if asked.background:
        return JSONResponse(stream.snapshot(), headers=answer_headers([stream]))
    return await _whole(edge, request, responses, stream.snapshot)


async def create_chat_completion(request: Request) -> Response:
    """POST /v1/chat/completions."""
    return await _complete(request, parse_chat_completion, ChatCompletion)


async def create_completion(request: Request) -> Response:
    """POST /v1/completions."""
    return await _complete(request, parse_completion, TextCompletion)


async def get_response(request: Request) -> Response:
    """GET /v1/responses/{response_id}: the object as it is now, or `?stream=true&starting_after=N` its events.

    `Last-Event-ID`, which a browser's EventSource sends when it reconnects, counts as starting_after.
    """
    edge, response = await _find(request)
    stream = response.stream
    if request.query_params.get("stream", "false").lower() not in ("true", "1"):
        return JSONResponse(stream.snapshot(), headers=answer_headers([stream]))
    after = _starting_after(request)
    check_starting_after(stream, after)
    return EventStream(edge, [response], response_events(stream), after=after, headers=answer_headers([stream]))


async def cancel_response(request: Request) -> Response:
    """POST /v1/responses/{response_id}/cancel: the response, cancelled unless it had ended or takes long to hear."""
    edge, response = await _find(request)
    await edge.responses.cancel(response)
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            await response.until(lambda stream: stream.finished)
    except TimeoutError:
        pass
    return JSONResponse(response.stream.snapshot(), headers=answer_headers([response.stream]))


def answer_headers(choices: Sequence[ResponseStream]) -> dict[str, str]:
    """x-request-id, those of all choices if there are several, and what is left of the quota behind the last of them,
    as soon as it has been asked.
    """
    ids = [stream.request.request_id for stream in choices]
    headers = {"x-request-id": ids[0]}
    if len(ids) > 1:
        headers["x-headrace-request-ids"] = ", ".join(ids)
    admissions = [stream.log.admitted for stream in choices if stream.log.admitted is not None]
    if admissions:
        admitted = min(admissions, key=lambda admission: (admission.remaining_requests, admission.remaining_tokens))
        headers |= {
            "x-ratelimit-limit-requests": str(admitted.limit_requests),
            "x-ratelimit-remaining-requests": str(admitted.remaining_requests),
            "x-ratelimit-reset-requests": f"{admitted.reset_requests_ms}ms",
            "x-ratelimit-limit-tokens": str(admitted.limit_tokens),
            "x-ratelimit-remaining-tokens": str(admitted.remaining_tokens),
            "x-ratelimit-reset-tokens": f"{admitted.reset_tokens_ms}ms",
        }
    return headers


async def _complete(
    request: Request, parse: Callable[[Mapping[str, Any]], ClientRequest], shape: type[ChatCompletion]
) -> Response:
    edge, choices, asked = await _create(request, parse)
    streams = [choice.stream for choice in choices]
    view = shape(streams, include_usage=asked.include_usage)
    if not asked.stream:
        return await _whole(edge, request, choices, view.whole)
    await _beginning(edge, request, choices)
    headers = answer_headers(streams)
    return EventStream(edge, choices, data_only(view.frames), headers=headers, closing=view.closing)


async def _create(
    request: Request, parse: Callable[[Mapping[str, Any]], ClientRequest]
) -> tuple[Edge, list[OpenResponse], ClientRequest]:
    """One response, or as many as choices are asked for."""
    edge: Edge = request.app.state.edge
    tenant = authenticate(edge.registry(), bearer(request.headers))
    body = await read_json(request, edge.settings.max_body_bytes)
    received_at_us = now_us()
    asked = parse(body)
    choices = await create_choices(
        edge.responses,
        tenant.tenant,
        asked,
        received_at_us=received_at_us,
        deadline_at_us=_deadline(request, received_at_us),
        traceparent=request.headers.get(TRACEPARENT),
    )
    request.scope["headrace.request_id"] = choices[0].stream.request.request_id
    return edge, choices, asked


async def _find(request: Request) -> tuple[Edge, OpenResponse]:
    edge: Edge = request.app.state.edge
    tenant = authenticate(edge.registry(), bearer(request.headers))
    return edge, await edge.responses.find(tenant.tenant, request.path_params["response_id"])


async def _whole(
    edge: Edge, request: Request, choices: Sequence[OpenResponse], make: Callable[[], dict[str, Any]]
) -> Response:
    """The finished answer. Raises what the log says is the failure of the first that has failed."""
    await _until(edge, request, choices, lambda stream: stream.finished)
    await _raise_failure(edge, request, choices)
    for choice in choices:
        edge.delivered(choice, "http", first_delta_at_us=None, events=1)
    return JSONResponse(make(), headers=answer_headers([choice.stream for choice in choices]))


async def _beginning(edge: Edge, request: Request, choices: Sequence[OpenResponse]) -> None:
    """Wait for the log's first word about each. Raises its failure, if that is what it says."""
    await _until(edge, request, choices, lambda stream: stream.next_sequence_number > 1)
    if any(choice.stream.failure is not None and choice.stream.log.text_chars == 0 for choice in choices):
        await _raise_failure(edge, request, choices)


async def _raise_failure(edge: Edge, request: Request, choices: Sequence[OpenResponse]) -> None:
    """Raises if one has failed; there is no answer then, and the others are given up."""
    failed = next((choice for choice in choices if choice.stream.failure is not None), None)
    if failed is None:
        return
    request.scope["headrace.request_id"] = failed.stream.request.request_id
    edge.delivered(failed, "http", first_delta_at_us=None, events=1)
    await give_up(edge.responses, choices)
    assert failed.stream.failure is not None
    raise failed.stream.failure


async def _until(
    edge: Edge, request: Request, choices: Sequence[OpenResponse], condition: Callable[[ResponseStream], bool]
) -> None:
    """Wait until this holds for each, or one has failed, as long as the client does.

    Raises ClientDisconnect, and Overloaded when the gateway is stopping.
    """

    def decided() -> bool:
        streams = [choice.stream for choice in choices]
        return all(map(condition, streams)) or any(stream.failure is not None for stream in streams)

    waiting = asyncio.create_task(until(choices, decided))
    leaving = asyncio.create_task(_left(request))
    stopping = asyncio.create_task(edge.stopping.wait())
    tasks = {waiting, leaving, stopping}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if waiting in done:
        return
    if leaving in done:
        raise ClientDisconnect
    raise Overloaded(
        f"this gateway is restarting; the response goes on: GET /v1/responses/{choices[0].stream.response_id}",
        code="service_restart", retry_after_ms=1000,
    )  # fmt: skip


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _deadline(request: Request, received_at_us: int) -> int | None:
    value = request.headers.get("x-headrace-deadline-ms")
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and 0 < int(value[:12]) <= 86_400_000 and len(value) <= 12):
        raise InvalidRequest(
            f"x-headrace-deadline-ms must be milliseconds from now, 1 to 86400000, got {value[:40]!r}",
            param="x-headrace-deadline-ms",
        )
    return received_at_us + int(value) * 1000


def _starting_after(request: Request) -> int:
    value = request.query_params.get("starting_after") or request.headers.get("last-event-id") or "-1"
    try:
        return int(value[:12])
    except ValueError:
        raise InvalidRequest(
            f"starting_after must be a sequence number, got {value[:40]!r}", param="starting_after"
        ) from None
