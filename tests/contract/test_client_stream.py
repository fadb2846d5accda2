"""headrace_client's streams against real gateways, which stop and die in the middle of answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headrace_client import (
    Backoff,
    GatewayRefused,
    Limits,
    OutputTextDelta,
    RateLimitsUpdated,
    RequestRefused,
    ResponseEnd,
    ResponseEvent,
    Stream,
    SyncStream,
)
from infra.runtime.ports import free_port
from schemas.events import RequestSubmitted
from schemas.ids import new_request_id, response_id_of
from tests.brokers import Broker
from tests.contract.gateway_world import RunningGateway, Step, World, register_model, world
from tests.gateway_events import admitted, finished, rejected, started, tokens
from tests.timing import eventually, within

SOON = Backoff(first_s=0.02, most_s=0.1, attempts=400)
WORDS = [f"w{number} " for number in range(12)]
WHOLE = "".join(WORDS)


@pytest.fixture(scope="module")
def here(broker: Broker) -> Iterator[World]:
    register_model(broker.profile)
    with world(broker.profile) as made:
        yield made


def stream_to(here: World, gateway: RunningGateway | None = None, **settings: object) -> Stream:
    return Stream((gateway or here.gateway).http, api_key=here.key, **{"reconnect": SOON, **settings})


def held_back(here: World, model: str, gates: int) -> list[threading.Event]:
    """An answer in `gates` + 1 pieces; each gate lets one more out."""
    events = [threading.Event() for _ in range(gates)]
    size = len(WORDS) // (gates + 1)

    def script(request: RequestSubmitted) -> Iterator[Step]:
        yield admitted(request)
        yield started(request)
        for number, event in enumerate(tokens(request, WORDS)):
            if number and number % size == 0 and number // size <= gates:
                yield events[number // size - 1]
            yield event
        yield finished(request, len(WORDS))

    here.upstream.script_for[model] = script
    return events


async def test_many_answers_come_over_one_socket_with_the_tenants_quota(here: World) -> None:
    async with stream_to(here) as stream:
        responses = await asyncio.gather(*(stream.create(model="chat", input=f"a{n} b c") for n in range(8)))
        events = [event async for event in responses[0]]
        answers = await asyncio.gather(*(response.answer() for response in responses[1:]))
    sequence = [event.sequence_number for event in events if isinstance(event, ResponseEvent)]
    assert sequence == list(range(len(sequence)))
    (limits,) = (event for event in events if isinstance(event, RateLimitsUpdated))
    assert {limit.name for limit in limits.rate_limits} == {"requests", "tokens"}
    assert isinstance(events[-1], ResponseEnd)
    assert [answer.text for answer in answers] == [f"a{number} b c " for number in range(1, 8)]


async def test_an_answer_survives_the_gateways_restarts(here: World) -> None:
    gates = held_back(here, "restarted", 2)
    settings = replace(here.settings, port=free_port(), gateway_id=f"{here.settings.gateway_id}-again")
    gateway = RunningGateway(settings)
    gateway.start()
    numbers, text, shut = [], "", list(gates)
    async with stream_to(here, gateway) as stream:
        response = await stream.create(model="restarted", input="x", timeout=within(60))
        async for event in response:
            if not isinstance(event, ResponseEvent):
                continue
            numbers.append(event.sequence_number)
            if isinstance(event, OutputTextDelta):
                text += event.delta
                if text in ("".join(WORDS[:4]), "".join(WORDS[:8])):
                    await asyncio.to_thread(gateway.stop)
                    shut.pop(0).set()
                    gateway = RunningGateway(settings)
                    await asyncio.to_thread(gateway.start)
        answer = await response.answer()
    gateway.stop()
    assert shut == []
    assert numbers == list(range(len(numbers)))
    assert text == answer.text == WHOLE


async def test_another_gateway_goes_on_where_one_stood(here: World) -> None:
    (gate,) = held_back(here, "moved", 1)
    async with stream_to(here) as stream:
        response = await stream.create(model="moved", input="x")
        deltas = response.text_deltas()
        first = [await anext(deltas) for _ in range(3)]
    gate.set()
    async with stream_to(here) as stream:
        later = await stream.resume(response.response_id, starting_after=response.last_sequence_number)
        assert "".join(first) + "".join([delta async for delta in later.text_deltas()]) == WHOLE


async def test_a_reader_who_does_not_read_loses_nothing(here: World) -> None:
    words = [f"{number} " + "x" * 2000 for number in range(600)]
    here.upstream.script_for["flood"] = lambda request: [
        started(request), *tokens(request, words), finished(request, len(words)),
    ]  # fmt: skip
    async with stream_to(here, limits=Limits(buffer_events=16)) as stream:
        slow = await stream.create(model="flood", input="x", timeout=within(60))
        quick = await stream.create(model="flood", input="x", timeout=within(60))
        assert (await quick.answer()).text == "".join(words)
        assert [delta async for delta in slow.text_deltas()] == words


async def test_a_cancel_ends_the_answer_and_so_does_a_timeout(here: World) -> None:
    held_back(here, "endless", 1)
    async with stream_to(here) as stream:
        response = await stream.create(model="endless", input="x")
        await response.cancel()
        assert (await response.answer()).status == "cancelled"
        late = await stream.create(model="endless", input="x", timeout=0.3)
        with pytest.raises(TimeoutError):
            await late.answer()
        request_id = late.response_id.removeprefix("resp_")
        await asyncio.to_thread(
            eventually,
            lambda: [cancel for cancel in here.upstream.cancels if cancel.request_id.replace("-", "") == request_id],
            "the late one is cancelled",
        )


async def test_refusals_are_typed(here: World) -> None:
    here.upstream.script_for["none"] = lambda request: [
        rejected(request, 404, "not_found_error", "model_not_found")
    ]  # fmt: skip
    async with stream_to(here) as stream:
        with pytest.raises(RequestRefused, match="temperature"):
            await stream.create(model="chat", input="x", temperature="hot")
        response = await stream.create(model="none", input="x")
        with pytest.raises(RequestRefused) as refused:
            await response.answer()
        assert (refused.value.status, refused.value.code) == (404, "model_not_found")
        nobody = response_id_of(new_request_id(now_ms=1_796_000_000_000, partition=0, entropy=1))
        with pytest.raises(RequestRefused, match="404 response_not_found"):
            await (await stream.resume(nobody)).answer()
    with pytest.raises(GatewayRefused):
        async with Stream(here.gateway.http, api_key="hr_wrong"):
            raise AssertionError("never connected")


def test_the_same_with_threads(here: World) -> None:
    with SyncStream(here.gateway.http, api_key=here.key) as stream:
        responses = [stream.create(model="chat", input=f"a{number} b") for number in range(3)]
        assert ["".join(response.text_deltas()) for response in responses] == [f"a{number} b " for number in range(3)]
