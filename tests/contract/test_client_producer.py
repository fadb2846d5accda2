"""headrace_client's Producer on a real log: streams and workers are played by a script."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from headrace_client import (
    AnswerFailed,
    AsyncProducer,
    Backoff,
    Backpressure,
    Closed,
    DeliveryFailed,
    Failed,
    Finished,
    InvalidRequest,
    NotDelivered,
    Producer,
    RegistryFailed,
    Rejected,
    RequestRefused,
    ResultTimeout,
    Submission,
    TextDelta,
    UnknownTenant,
)
from infra.runtime.ports import free_port
from schemas.events import RequestSubmitted
from schemas.topics import tokens_topic
from tests.brokers import Broker
from tests.contract.gateway_world import FakeUpstream, Step, register_tenant
from tests.gateway_events import admitted, failed, finished, rejected, started, tokens
from tests.timing import eventually, within

WORDS = ("one ", "two ", "three ")
QUICK: dict[str, Any] = {"kafka_consumer": {"fetch.wait.max.ms": 5}}


@dataclass(frozen=True)
class Here:
    servers: str
    upstream: FakeUpstream
    tenants: tuple[str, str]

    @property
    def tenant(self) -> str:
        return self.tenants[0]


@pytest.fixture(scope="module")
def here(broker: Broker) -> Iterator[Here]:
    profile: BrokerProfile = broker.profile
    tenants = (f"c-{secrets.token_hex(4)}", f"d-{secrets.token_hex(4)}")
    for name in tenants:
        register_tenant(profile, name)
    with FakeUpstream(profile, tenants) as upstream:
        yield Here(broker.bootstrap_servers, upstream, tenants)


@pytest.fixture
def producer(here: Here) -> Iterator[Producer]:
    with Producer(here.servers, source="test", **QUICK) as made:
        yield made


def test_tokens_come_as_they_are_made_and_then_the_end(here: Here, producer: Producer) -> None:
    asked = [producer.submit(tenant=here.tenant, model="chat", prompt="one two three") for _ in range(3)]
    texts = dict.fromkeys(asked, "")
    for result in producer.results(here.tenant, timeout=within(20)):
        if isinstance(result, TextDelta):
            texts[result.submission] += result.text
        else:
            assert isinstance(result, Finished)
            assert result.text == texts[result.submission] == "one two three "
            assert result.submission.delivered
    assert set(texts.values()) == {"one two three "}


def test_text_is_there_before_the_answer_is_whole(here: Here, producer: Producer) -> None:
    go_on = threading.Event()

    def script(request: RequestSubmitted) -> Iterator[Step]:
        first, *rest = tokens(request, WORDS)
        yield admitted(request)
        yield started(request)
        yield first
        yield go_on
        yield from rest
        yield finished(request, len(WORDS))

    here.upstream.script_for["held"] = script
    producer.submit(tenant=here.tenant, model="held", prompt="x")
    results = producer.results(timeout=within(20))
    first = next(results)
    assert isinstance(first, TextDelta)
    assert first.text == WORDS[0]
    go_on.set()
    assert "".join(result.text for result in results if isinstance(result, TextDelta)) == "".join(WORDS[1:])


def test_an_answer_can_be_waited_for_while_others_are_read(here: Here, producer: Producer) -> None:
    first, second = (producer.submit(tenant=here.tenant, model="chat", prompt=text) for text in ("a", "b c"))
    assert producer.answer(second, timeout=within(20)).text == "b c "
    assert {result.submission for result in producer.results(timeout=within(20))} == {first}
    with pytest.raises(InvalidRequest, match="has been read"):
        producer.answer(second)


def test_the_request_that_is_written_says_what_was_asked(here: Here, producer: Producer) -> None:
    heard: list[tuple[Submission, DeliveryFailed | None]] = []
    asked = producer.submit(
        tenant=here.tenant, model="seen", messages=[{"role": "system", "content": "s"}], temperature=0.5, seed=7,
        stop="end", metadata={"k": "v"}, deadline=timedelta(minutes=1),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        on_delivery=lambda submission, failure: heard.append((submission, failure)),
    )  # fmt: skip
    asked.wait_delivered(within(20))

    (request,) = eventually(lambda: here.upstream.requests_for("seen"), "the request arrives")
    assert (request.source, request.endpoint, request.messages[0].role) == ("test", "events", "system")
    assert (request.temperature, request.seed, request.stop, request.metadata) == (0.5, 7, ("end",), {"k": "v"})
    assert request.deadline_at_us == request.at_us + 60_000_000
    assert (asked.request.request_id, asked.delivered) == (request.request_id, True)
    assert heard == [(asked, None)]
    producer.forget(asked)
    assert list(producer.results(timeout=within(5))) == []


def test_a_cancel_ends_the_answer(here: Here, producer: Producer) -> None:
    here.upstream.script_for["endless"] = lambda request: [started(request), threading.Event()]
    asked = producer.submit(tenant=here.tenant, model="endless", prompt="x")
    producer.cancel(asked)
    assert producer.answer(asked, timeout=within(20)).finish_reason == "cancelled"


def test_what_the_server_says_is_a_typed_error(here: Here, producer: Producer) -> None:
    here.upstream.script_for |= {
        "none": lambda request: [rejected(request, 404, "not_found_error", "model_not_found")],
        "broken": lambda request: [started(request), *tokens(request, WORDS[:1]), failed(request, 1)],
        "late": lambda request: [started(request), finished(request, 0, "timeout")],
    }
    asked = {name: producer.submit(tenant=here.tenant, model=name, prompt="x") for name in ("none", "broken", "late")}
    with pytest.raises(RequestRefused) as refused:
        producer.answer(asked["none"], timeout=within(20))
    assert (refused.value.status, refused.value.code, refused.value.param) == (404, "model_not_found", "model")
    with pytest.raises(AnswerFailed, match="504 deadline_exceeded"):
        producer.answer(asked["late"], timeout=within(20))
    *_, last = producer.results(timeout=within(20))
    assert isinstance(last, Failed)
    assert last.text == WORDS[0]


def test_a_request_that_was_refused_for_want_of_room_is_tried_again_when_the_caller_asks(
    here: Here, producer: Producer
) -> None:
    calls: list[str] = []

    def script(request: RequestSubmitted) -> list[Step]:
        calls.append(request.request_id)
        if len(calls) < 3:
            return [rejected(request, 429, "rate_limit_error", "requests_per_minute", 20)]
        return [started(request), *tokens(request, WORDS), finished(request, len(WORDS))]

    here.upstream.script_for["busy"] = script
    asked = producer.submit(tenant=here.tenant, model="busy", prompt="x")
    answer = producer.answer(asked, timeout=within(20), retry=Backoff(first_s=0.01, attempts=5))
    assert answer.text == "".join(WORDS)
    assert [calls[0], calls[-1]] == [asked.request_id, answer.submission.request_id]
    assert len(set(calls)) == 3

    calls.clear()
    with pytest.raises(RequestRefused) as refused:
        producer.answer(producer.submit(tenant=here.tenant, model="busy", prompt="x"), timeout=within(20))
    assert (refused.value.retry_after_ms, len(calls)) == (20, 1)


def test_results_of_several_tenants_come_together_and_go_on_until_the_end(here: Here) -> None:
    ended = []
    with Producer(here.servers, source="test", **QUICK) as producer:
        for tenant in here.tenants:
            producer.submit(tenant=tenant, model="chat", prompt="x")
        for result in producer.results(follow=True, timeout=within(20)):
            if isinstance(result, Finished):
                ended.append(result.submission.tenant)
            if len(ended) == 2:
                producer.submit(tenant=here.tenant, model="chat", prompt="x")
            if len(ended) == 3:
                threading.Thread(target=producer.close).start()
    assert set(ended[:2]) == set(here.tenants)


def test_a_tenant_is_found_while_results_of_another_are_read(here: Here) -> None:
    with Producer(here.servers, source="test", **QUICK) as producer:
        for tenant in here.tenants:
            asked = producer.submit(tenant=tenant, model="chat", prompt="x")
            assert producer.answer(asked, timeout=within(20)).text == "x "


def test_an_answer_has_one_reader_and_none_once_it_is_forgotten(here: Here, producer: Producer) -> None:
    here.upstream.script_for["asked-twice"] = lambda request: []
    asked = producer.submit(tenant=here.tenant, model="asked-twice", prompt="x")
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(producer.answer, asked, timeout=within(20)) for _ in range(2)]
        here.upstream.write(finished(request_of(here, "asked-twice"), 0))
        ends = [future.exception() for future in waiting]
    assert sorted(type(end).__name__ for end in ends) == ["InvalidRequest", "NoneType"]

    asked = producer.submit(tenant=here.tenant, model="asked-twice", prompt="x")
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(producer.answer, asked, timeout=within(20))
        eventually(lambda: waiter.running(), "somebody waits")
        producer.forget(asked)
        assert isinstance(waiter.exception(), InvalidRequest)


def test_what_another_producer_has_submitted_is_not_this_ones_to_cancel(here: Here, producer: Producer) -> None:
    asked = producer.submit(tenant=here.tenant, model="chat", prompt="x")
    with Producer(here.servers, source="other", **QUICK) as other, pytest.raises(InvalidRequest, match="not submitted"):
        other.cancel(asked)


def test_answers_with_a_registrys_ids_are_a_typed_error_for_those_who_have_no_registry(
    here: Here, broker: Broker
) -> None:
    here.upstream.script_for["framed"] = lambda request: []
    with (
        EventProducer(broker.profile, client_id="test") as log,
        Producer(here.servers, source="test", **QUICK) as producer,
    ):
        asked = producer.submit(tenant=here.tenant, model="framed", prompt="x")
        key = asked.request_id.encode()
        log.write(tokens_topic(here.tenant), asked.partition, b"\0\0\0\0\x07body", key=key, headers=[])
        with pytest.raises(RegistryFailed, match=r"id 7.*set schema_registry_url"):
            producer.answer(asked, timeout=within(20))


def test_a_request_larger_than_a_record_is_no_request(here: Here, producer: Producer) -> None:
    with pytest.raises(InvalidRequest, match=r"message\.max\.bytes"):
        producer.submit(tenant=here.tenant, model="chat", prompt="x " * 500_000)


def test_a_reader_who_does_not_read_pauses_the_log_and_loses_nothing(here: Here) -> None:
    words = [f"{number:>9} " for number in range(300)]
    here.upstream.script_for["long"] = lambda request: [
        started(request), *tokens(request, words), finished(request, len(words)),
    ]  # fmt: skip
    gate = threading.Event()
    here.upstream.script_for["held-back"] = lambda request: [
        gate, started(request), *tokens(request, WORDS), finished(request, len(WORDS)),
    ]  # fmt: skip
    with Producer(here.servers, source="test", most_unread=50, **QUICK) as producer:
        first = producer.submit(tenant=here.tenant, model="long", prompt="x")
        second = producer.submit(tenant=here.tenant, model="held-back", prompt="x")
        with pytest.raises(Backpressure, match="nobody reads them"):
            producer.answer(second, timeout=within(20))
        gate.set()
        assert producer.answer(first, timeout=within(20)).text == "".join(words)
        assert producer.answer(second, timeout=within(20)).text == "".join(WORDS)


def test_what_is_not_read_bounds_what_can_be_submitted(here: Here) -> None:
    with Producer(here.servers, source="test", most_open=2, block_s=0.05, **QUICK) as producer:
        first, _ = (producer.submit(tenant=here.tenant, model="chat", prompt="x") for _ in range(2))
        with pytest.raises(Backpressure, match="2 submissions have ends that nobody has read"):
            producer.submit(tenant=here.tenant, model="chat", prompt="x")
        producer.answer(first, timeout=within(20))
        producer.submit(tenant=here.tenant, model="chat", prompt="x")


def test_nothing_is_kept_for_those_who_read_no_results(here: Here) -> None:
    with Producer(here.servers, source="test", follow_results=False, most_open=1) as producer:
        for _ in range(3):
            asked = producer.submit(tenant=here.tenant, model="chat", prompt="x")
        asked.wait_delivered(within(20))
        with pytest.raises(InvalidRequest, match="follow_results"):
            producer.answer(asked)


def test_waiting_ends_when_the_caller_says(here: Here, producer: Producer) -> None:
    here.upstream.script_for["silent"] = lambda request: []
    asked = producer.submit(tenant=here.tenant, model="silent", prompt="x")
    with pytest.raises(ResultTimeout, match="for the answer of"):
        producer.answer(asked, timeout=0.1)
    with pytest.raises(ResultTimeout):
        next(producer.results(timeout=0.1))
    producer.cancel(asked)  # and it can still be asked for
    here.upstream.write(finished(request_of(here, "silent"), 0, "cancelled"))
    assert producer.answer(asked, timeout=within(20)).finish_reason == "cancelled"


def request_of(here: Here, model: str) -> RequestSubmitted:
    return eventually(lambda: here.upstream.requests_for(model), f"a request for {model} arrives")[0]


def test_a_tenant_that_is_not_there_is_no_request(producer: Producer) -> None:
    with pytest.raises(UnknownTenant, match="register the tenant nobody"):
        producer.submit(tenant="nobody", model="chat", prompt="x")


def test_a_closed_producer_says_so(here: Here) -> None:
    producer = Producer(here.servers, source="test", **QUICK)
    here.upstream.script_for["silent"] = lambda request: []
    asked = producer.submit(tenant=here.tenant, model="silent", prompt="x")
    threading.Timer(0.2, producer.close).start()
    with pytest.raises(Closed):
        producer.answer(asked, timeout=within(20))
    with pytest.raises(Closed):
        producer.submit(tenant=here.tenant, model="chat", prompt="x")
    producer.close()
    assert producer.flush() == 0


def test_what_the_broker_does_not_acknowledge_has_failed(here: Here) -> None:
    with Producer(here.servers, source="test", **QUICK) as producer:
        producer.answer(producer.submit(tenant=here.tenant, model="chat", prompt="x"), timeout=within(20))
        place = producer._exchange._places[here.tenant]
        away = f"127.0.0.1:{free_port()}"
        with Producer(away, source="test", delivery_timeout_s=0.3) as cut:
            cut._exchange._places[here.tenant] = place
            asked = cut.submit(tenant=here.tenant, model="chat", prompt="x")
            with pytest.raises(DeliveryFailed):
                asked.wait_delivered(within(20))
            (result,) = cut.results()
            assert isinstance(result, NotDelivered)


async def test_the_same_with_asyncio(here: Here) -> None:
    calls: list[None] = []

    def script(request: RequestSubmitted) -> list[Step]:
        calls.append(None)
        if len(calls) == 1:
            return [rejected(request, 503, "overloaded_error", "no_capacity", 10)]
        return [started(request), *tokens(request, WORDS), finished(request, len(WORDS))]

    here.upstream.script_for["overloaded"] = script
    async with AsyncProducer(here.servers, source="test", **QUICK) as producer:
        asked = [await producer.submit(tenant=here.tenant, model="chat", prompt=f"x {n}") for n in range(20)]
        await producer.delivered(asked[0], timeout=within(20))
        answers = await asyncio.gather(*(producer.answer(each, timeout=within(20)) for each in asked[:10]))
        assert [answer.text for answer in answers] == [f"x {number} " for number in range(10)]
        ended = [r.submission async for r in producer.results(timeout=within(20)) if isinstance(r, Finished)]
        assert set(ended) == set(asked[10:])

        late = await producer.submit(tenant=here.tenant, model="overloaded", prompt="x")
        answer = await producer.answer(late, timeout=within(20), retry=Backoff(first_s=0.01))
        assert answer.text == "".join(WORDS)
        here.upstream.script_for["silent"] = lambda request: []
        silent = await producer.submit(tenant=here.tenant, model="silent", prompt="x")
        with pytest.raises(ResultTimeout):
            await producer.answer(silent, timeout=0.1)
        with pytest.raises(RuntimeError, match=r"await producer\.delivered"):
            silent.wait_delivered()
        await producer.cancel(silent)
        producer.forget(silent)
        assert await producer.flush() == 0


def test_a_rejection_can_be_submitted_again_by_hand(here: Here, producer: Producer) -> None:
    here.upstream.script_for["full"] = lambda request: [rejected(request, 429, "rate_limit_error", "full", 5)]
    producer.submit(tenant=here.tenant, model="full", prompt="x")
    (result,) = producer.results(timeout=within(20))
    assert isinstance(result, Rejected)
    assert result.retryable
    again = producer.resubmit(result.submission)
    assert again.request_id != result.submission.request_id
    assert again.request.messages == result.submission.request.messages
