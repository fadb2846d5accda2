"""Every record that the system writes has its headers, and all that follows from one request is one trace."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from websockets.asyncio.client import connect

from eventlog.clock import now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.record import Record
from schemas.catalog import full_name
from schemas.events import Event
from schemas.headers import event_id_of, own_traceparent, rfc3339
from schemas.ids import request_id_of
from schemas.topics import Topics, requests_topic
from tests.brokers import Broker
from tests.journey.system import System, running_system
from tests.timing import eventually, within

W3C = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
ANSWERED = Counter({
    "RequestSubmitted": 1, "RequestValidated": 1, "RequestAdmitted": 1, "RequestRouted": 1, "GenerationStarted": 1,
    "GenerationFinished": 2,  # the token log's, and the copy from which quota settles
    "QuotaSettled": 1, "ResponseDelivered": 1,
})  # fmt: skip
Found = list[tuple[Record, Event]]


def trace_of(number: int) -> str:
    """A trace that a client brings along."""
    return f"00-{number:032x}-{number:016x}-01"


@pytest.fixture(scope="module")
def system(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    settings = {"HEADRACE_ECHO_TOKENS_PER_SECOND": "200"}
    with running_system(broker, tmp_path_factory.mktemp("headers"), **settings) as system:
        yield system


@pytest.fixture(scope="module")
def began_us() -> int:
    return now_us()


@pytest.mark.timeout(240)
async def test_every_record_has_its_headers_and_a_request_is_one_trace(
    broker: Broker, began_us: int, system: System
) -> None:
    tenant = f"traced-{began_us}"
    key = await asyncio.to_thread(system.add_tenant, tenant)
    async with httpx.AsyncClient(
        base_url=system.gateway_url, headers={"Authorization": f"Bearer {key}"}, timeout=within(60)
    ) as client:
        traced = await ask(client, trace_of(1))
        untraced = await ask(client, None)
        malformed = await ask(client, f"ff{trace_of(2)[2:]}")
        rejected = await ask(client, trace_of(3), model="nobody")
    cancelled = await cancelled_over_websocket(system, key, trace_of(4))
    write_poison(broker.profile, tenant, trace_of(5))

    found = await asyncio.to_thread(
        eventually, lambda: settled(read(broker.profile, tenant, began_us)), "all records are there", 30
    )
    for record, event in found:
        assert_headers(record, event, tenant)
    kinds, traces = by_request(found)
    assert {request_id: traces[request_id] for request_id in traces} == {
        traced: {trace_of(1)[3:35]},
        untraced: {own_traceparent(untraced)[3:35].decode()},
        malformed: {own_traceparent(malformed)[3:35].decode()},
        rejected: {trace_of(3)[3:35]},
        cancelled: {trace_of(4)[3:35]},
    }
    for request_id in (traced, untraced, malformed):
        assert kinds[request_id].pop("TokensGenerated") > 0
        assert kinds[request_id] == ANSWERED
    assert kinds[rejected].keys() >= {"RequestSubmitted", "RequestRejected", "ResponseDelivered"}
    assert kinds[cancelled]["RequestCancelled"] == 3  # as asked for, validated, and to the worker
    assert kinds[cancelled]["QuotaSettled"] == 1


async def ask(client: httpx.AsyncClient, traceparent: str | None, model: str = "echo") -> str:
    """The request id of a whole answer."""
    headers = {} if traceparent is None else {"traceparent": traceparent}
    answer = await client.post("/v1/responses", headers=headers, json={"model": model, "input": "one two three"})
    body: dict[str, Any] = answer.json()
    if model != "nobody":
        assert body["status"] in {"completed", "incomplete"}, body
        return request_id_of(body["id"])
    return request_id_of(answer.headers["x-request-id"])


async def cancelled_over_websocket(system: System, key: str, traceparent: str) -> str:
    url = f"ws://{urlsplit(system.gateway_url).netloc}/v1/responses"
    headers = {"Authorization": f"Bearer {key}", "traceparent": traceparent}
    async with connect(url, additional_headers=headers) as socket:
        prompt = "slowly " * 200
        await socket.send(json.dumps({"type": "response.create", "model": "echo", "input": prompt}))
        async for frame in socket:
            event: dict[str, Any] = json.loads(frame)
            if event["type"] == "response.in_progress":
                await socket.send(json.dumps({"type": "response.cancel", "response_id": event["response_id"]}))
            if event["type"] == "response.cancelled":
                return request_id_of(event["response_id"])
    raise AssertionError("the socket was closed before the answer ended")


def write_poison(profile: BrokerProfile, tenant: str, traceparent: str) -> None:
    with EventProducer(profile, client_id="poison") as producer:
        headers = [("traceparent", traceparent.encode())]
        producer.send_bytes(requests_topic(tenant), b"no event", key=b"k", headers=headers)


def read(profile: BrokerProfile, tenant: str, began_us: int) -> Found:
    """All that the system has written about this tenant, and about itself, since then."""
    shared = {spec.name for spec in Topics().shared()}
    topics = AdminClient(profile.client("headers")).list_topics(timeout=within(10)).topics
    names = [name for name in topics if name in shared or name.endswith(f".{tenant}")]
    starts = {(name, partition): 0 for name in names for partition in topics[name].partitions}
    found = []
    with LogReader(profile, client_id="headers") as reader:
        for record in reader.read_to_end(starts):
            if record.value and record.value != b"no event":
                event = record.event()
                if event.at_us >= began_us and getattr(event, "tenant", tenant) in (tenant, None):
                    found.append((record, event))
    return found


def settled(found: Found) -> Found | None:
    """Once nothing more will come."""
    seen = Counter(type(event).__name__ for _, event in found)
    whole = seen["QuotaSettled"] == 4 and seen["ResponseDelivered"] == 5 and seen["DeadLettered"] == 1
    return found if whole and seen["WorkerReported"] and seen["GatewayReported"] else None


def assert_headers(record: Record, event: Event, tenant: str) -> None:
    headers: Mapping[str, bytes] = dict(record.headers)
    assert len(headers) == len(record.headers), "a header twice"
    text = {name: value.decode() for name, value in headers.items()}
    source = text.pop("ce_source")
    assert re.fullmatch(r"/headrace/[A-Za-z0-9._~-]+", source), source
    assert W3C.fullmatch(text.pop("traceparent").encode())
    expected = {
        "ce_specversion": "1.0", "ce_type": full_name(type(event)), "ce_id": event_id_of(event),
        "ce_time": rfc3339(event.at_us),
    }  # fmt: skip
    expected |= {name: value for name in ("request_id", "tenant") if (value := getattr(event, name, None)) is not None}
    assert text == expected, (record.topic, event)


def by_request(found: Sequence[tuple[Record, Event]]) -> tuple[dict[str, Counter[str]], dict[str, set[str]]]:
    """Of each request: what was written, and in which traces."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    traces: dict[str, set[str]] = defaultdict(set)
    for record, event in found:
        request_id = getattr(event, "request_id", None)
        if request_id is not None:
            assert record.traceparent is not None
            kinds[request_id][type(event).__name__] += 1
            traces[request_id].add(record.traceparent[3:35].decode())
    return kinds, traces
